"""Tasks held back from training: nothing alike is trained on, and nothing derived."""

import pytest

from sentinel.benchmarks.alike import keys
from sentinel.benchmarks.base import Task
from sentinel.errors import UserError
from sentinel.nano.held_back import hold_back


def task(name: str, text: str, group: str = "g", **meta: object) -> Task:
    return Task("w", name, group, text, gold=f"SELECT '{text}'", answerable=True, meta=meta)


POOL = [task(f"q{i}", f"question {i}", value={"drug": f"d{i}"}) for i in range(40)]
TWINS = [task(f"twin{i}", f"Question  {i}?", value={"drug": f"d{i}"}) for i in range(0, 40, 4)]
DERIVED = [
    task(f"q{i}~{k}", f"new {i} {k}", value={"drug": f"n{i}-{k}"}, source=f"q{i}")
    for i in range(40)
    for k in range(3)
]
ALL = [*POOL, *TWINS, *DERIVED]


def test_held_tasks_are_originals_and_nothing_like_them_is_trained_on() -> None:
    kept, held = hold_back(ALL, 12, seed=5)
    assert len({t.task_id for t in held}) == 12
    assert not any("source" in t.meta for t in held)
    seen = {key for t in kept for key in keys(t)}
    assert not any(seen.intersection(keys(t)) for t in held)
    gone = {t.task_id for t in held}
    assert not any(t.meta.get("source") in gone for t in kept)
    # A twin or its original goes with the other; three derived questions go with each.
    alike = sum(any(set(keys(a)) & set(keys(b)) for b in TWINS if b is not a) for a in held)
    assert len(kept) == len(ALL) - 12 - alike - 3 * len({t.text[-2:].strip(" ?") for t in held})


def test_the_same_seed_holds_the_same_back() -> None:
    assert hold_back(ALL, 12, 5) == hold_back(ALL, 12, 5)
    assert hold_back(ALL, 12, 5)[1] != hold_back(ALL, 12, 6)[1]


def test_repeated_questions_are_held_back_together() -> None:
    repeated = [*POOL, *POOL[:10], *POOL[:10]]
    kept, held = hold_back(repeated, 8, seed=1)
    assert not {t.task_id for t in held} & {t.task_id for t in kept}


@pytest.mark.parametrize("n", [41, 25])
def test_too_many_are_refused(n: int) -> None:
    with pytest.raises(UserError, match=f"held_back: {n} of 40"):
        hold_back(POOL, n, seed=1)
