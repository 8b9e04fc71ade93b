"""Ctrl-C and SIGTERM, which Lightning would turn into exit code 1 or hold back."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class _Signalled(BaseException):
    """Passes through Lightning unchanged, which a KeyboardInterrupt does not."""

    def __init__(self, number: int) -> None:
        self.number = number


def _raise(number: int, frame: FrameType | None) -> None:
    raise _Signalled(number)


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def insistent_signals() -> Iterator[None]:
    """Within the block Ctrl-C that meets a finalizer is not lost: it comes again a moment later."""
    # Python prints an exception out of a finalizer or a weak reference's callback and goes on.
    report = sys.unraisablehook
    coming: list[threading.Timer] = []

    def again(swallowed: "sys.UnraisableHookArgs") -> None:  # for type checkers alone
        error = swallowed.exc_value
        # Signals reach the main thread alone.
        if not isinstance(error, KeyboardInterrupt | _Signalled) or not _on_main_thread():
            return report(swallowed)
        number = error.number if isinstance(error, _Signalled) else signal.SIGINT
        later = threading.Timer(0.05, signal.raise_signal, (number,))
        coming.append(later)
        later.start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        for later in coming:
            later.join()  # not after the block
        sys.unraisablehook = report


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the block with SystemExit(143), as Ctrl-C does with KeyboardInterrupt."""
    stopped = False

    def leave(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        raise SystemExit(128 + number)

    if not _on_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    except Exception:
        if stopped:  # an extension that is being imported makes an ImportError of it
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def prompt_signals() -> Iterator[None]:
    """SIGINT ends the block with KeyboardInterrupt, SIGTERM with SystemExit(143), both at once."""
    before: dict[int, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM) if _on_main_thread() else ():
        if signal.getsignal(number) is not signal.SIG_IGN:  # as SIGINT is in the background
            before[number] = signal.signal(number, _raise)
    try:
        with insistent_signals():
            yield
    except _Signalled as stop:
        if stop.number == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise SystemExit(128 + stop.number) from None
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)
