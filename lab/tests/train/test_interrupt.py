"""A signal to stop waits for the current step, and is restored afterwards."""

import signal
import threading

import pytest

from factormer_lab.train.interrupt import HeldInterrupt

each_signal = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@each_signal
def test_signal_is_held_and_remembered(number):
    with HeldInterrupt() as interrupt:
        assert not interrupt.requested
        signal.raise_signal(number)
        assert interrupt.requested


@each_signal
@pytest.mark.parametrize("error", [None, RuntimeError])
def test_handlers_are_put_back_also_after_an_error(number, error):
    before = signal.getsignal(number)
    try:
        with HeldInterrupt():
            assert signal.getsignal(number) != before
            if error is not None:
                raise error
    except RuntimeError:
        pass
    assert signal.getsignal(number) == before


def test_object_used_again_forgets_the_last_signal():
    interrupt = HeldInterrupt()
    with interrupt:
        signal.raise_signal(signal.SIGINT)
    with interrupt:
        assert not interrupt.requested


def test_other_threads_leave_signals_alone():
    seen = []

    def enter() -> None:
        with HeldInterrupt() as interrupt:
            seen.append((interrupt.requested, signal.getsignal(signal.SIGINT)))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
