import subprocess
import sys
import time

import pytest

from cluster.memory import PeakMemory, tree_mb
from cluster.pilot import Mean, summarise
from sentinel.episodes import Episode
from sentinel.errors import UserError


def episode(end: str, turns: int = 2, **rest) -> Episode:
    return Episode("b", "a", f"b/a/{turns}/0", str(turns), "g", 0, end, turns, **rest)


def test_means_and_their_errors():
    assert Mean.of([3.0]) == Mean(3.0, None)
    assert Mean.of([1.0, 3.0]) == Mean(2.0, pytest.approx(1.0))


def test_episodes_without_an_outcome_are_counted_not_averaged():
    done = [episode("answered", 2, cost_usd=0.5), episode("engine_error", 9, error="no key")]
    found = summarise(done, 4.0, 1.0, 10.0, "b/a")
    assert (found.episodes, found.failed, found.turns.mean) == (1, 1, 2)
    assert found.dollars == Mean(0.5, None)
    assert found.first_error == "no key"
    with pytest.raises(UserError, match="no key"):
        summarise([done[1]], 1.0, 1.0, 1.0, "b/a")


def test_the_peak_sees_a_child_that_is_gone_by_the_end():
    child = (
        "x = bytearray(200 * 2**20); x[::4096] = b'1' * len(x[::4096]); import time; time.sleep(1)"
    )
    before = tree_mb()
    with PeakMemory(every=0.05) as memory:
        subprocess.run([sys.executable, "-c", child], check=True)
        time.sleep(0.1)
    assert memory.mb > before + 150
