import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from graphtheory.lab.signals import exit_on_sigterm, insistent_signals, prompt_signals


class Subject:
    """What a weak reference refers to until its last name is gone."""


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_ends_the_block(number: signal.Signals, error: type[BaseException]) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(error) as caught, prompt_signals():
        os.kill(os.getpid(), number)
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 143
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize("block", [prompt_signals, insistent_signals])
def test_a_finalizer_loses_no_signal(block: Callable[[], AbstractContextManager[None]]) -> None:
    subject = Subject()
    reference = weakref.ref(subject, lambda _: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), block():
        del subject
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            time.sleep(0.01)
    assert reference() is None


def test_it_comes_before_the_block_ends() -> None:
    class Subject:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                pass

    with pytest.raises(KeyboardInterrupt), insistent_signals():
        Subject()


def test_sigterm_is_an_exit() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as caught, exit_on_sigterm():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        assert caught.value.code == 143 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with exit_on_sigterm():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    # An import turns it into an error of its own.
    with pytest.raises(SystemExit) as ending, exit_on_sigterm():
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            raise ImportError("initialization failed") from None
    assert ending.value.code == 143
    with pytest.raises(ImportError), exit_on_sigterm():
        raise ImportError("of its own")


def test_other_errors_of_finalizers_are_reported_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.append(report.exc_type))
    subject = Subject()
    reference = weakref.ref(subject, lambda _: {}["missing"])
    with insistent_signals():
        del subject
    assert reference() is None and reported == [KeyError]


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with prompt_signals():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_errors_pass_and_other_threads_are_left_alone() -> None:
    with pytest.raises(KeyError), prompt_signals():
        raise KeyError
    done = []

    def work() -> None:
        with prompt_signals():
            done.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.getsignal(signal.SIGTERM)]
