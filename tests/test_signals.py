import os
import signal
import threading

import pytest

from graphtheory.train.signals import prompt_signals


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)],
)
def test_a_signal_ends_the_block(number: signal.Signals, error: type[BaseException]) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(error) as caught, prompt_signals():
        os.kill(os.getpid(), number)
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 143
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with prompt_signals():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_errors_pass() -> None:
    with pytest.raises(KeyError), prompt_signals():
        raise KeyError


def test_other_threads_are_left_alone() -> None:
    done = []

    def work() -> None:
        with prompt_signals():
            done.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.getsignal(signal.SIGTERM)]
