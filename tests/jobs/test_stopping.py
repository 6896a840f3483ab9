import asyncio
import os
import signal
import threading

import pytest

from jobs.stopping import STOPS, Stopped, run_async


@pytest.fixture(autouse=True)
def handlers():
    before = {s: signal.getsignal(s) for s in STOPS}
    yield
    for s, handler in before.items():
        signal.signal(s, handler)


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_cancels_and_the_clean_up_has_its_loop(number):
    done = []

    async def work():
        try:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.01)
            done.append(True)

    with pytest.raises(Stopped) as stopped:
        run_async(work())
    assert stopped.value.args == (number,)
    assert done == [True]
    assert all(signal.getsignal(s) is signal.SIG_IGN for s in STOPS)


def test_work_that_swallows_its_cancellation_is_stopped_all_the_same():
    async def work():
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return 3

    with pytest.raises(Stopped):
        run_async(work())


def test_without_a_signal_nothing_changes():
    def mine(number, frame):
        raise AssertionError

    for s in STOPS:
        signal.signal(s, mine)

    async def work():
        return 7

    assert run_async(work()) == 7
    assert all(signal.getsignal(s) is mine for s in STOPS)
    found = []
    thread = threading.Thread(target=lambda: found.append(run_async(work())))
    thread.start()
    thread.join()
    assert found == [7]
