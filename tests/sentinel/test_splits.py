"""Pools and folds: whole groups, both kinds, the same for the same seed; manifests."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentinel.errors import UserError
from sentinel.splits import (
    Manifest,
    Pool,
    dataset_hash,
    make_folds,
    make_pools,
    read_manifest,
    write_manifest,
)


def questions(n: int = 200, groups: int = 40) -> tuple[dict[str, str], dict[str, bool | None]]:
    """n questions in groups that hold both kinds."""
    group = {f"q{i:04}": f"g{i % groups:02}" for i in range(n)}
    return group, {f"q{i:04}": (i // groups) % 3 != 0 for i in range(n)}


@settings(max_examples=60, deadline=None)
@given(st.integers(6, 60), st.integers(0, 1000), st.data())
def test_pools_are_whole_groups_and_big_enough(groups: int, seed: int, data: st.DataObject) -> None:
    """No group in two pools; calibration is filled first, then held-out, each to ≥ 20 %."""
    sizes = data.draw(st.lists(st.integers(2, 9), min_size=groups, max_size=groups))
    group = {f"q{g}-{i}": f"g{g}" for g, size in enumerate(sizes) for i in range(size)}
    answerable = {q: not q.endswith("-0") for q in group}
    try:
        pools = make_pools(group, answerable, seed=seed)
    except UserError:
        return  # large groups may leave no train pool
    where = {g: {pools[q] for q in group if group[q] == g} for g in set(group.values())}
    assert all(len(found) == 1 for found in where.values())
    for pool in (Pool.CALIBRATION, Pool.HELDOUT):
        members = [q for q in group if pools[q] == pool]
        assert 5 * len(members) >= len(group)
        # One group less would not have been enough.
        assert 5 * (len(members) - max(sizes)) < len(group)
    assert pools == make_pools(dict(reversed(group.items())), answerable, seed=seed)


def test_a_pool_without_both_kinds_is_refused() -> None:
    """All faults in one line; pools without the notion of answerability pass."""
    group, answerable = questions()
    with pytest.raises(UserError, match=r"calibration has no unanswerable.*heldout has no"):
        make_pools(group, dict.fromkeys(answerable, True))
    assert set(make_pools(group, dict.fromkeys(answerable)).values()) == {
        Pool.TRAIN,
        Pool.CALIBRATION,
        Pool.HELDOUT,
    }
    with pytest.raises(UserError, match="train is empty"):
        make_pools({"a": "1", "b": "2"}, {"a": None, "b": None})
    with pytest.raises(UserError, match="leave a pool empty"):
        make_pools(group, answerable, calibration=0.5, heldout=0.5)


def test_shares_are_exact() -> None:
    """20 % of 15 questions are 3, not the 3.0000000000000004 of 0.2 · 15 in floats."""
    group = {f"q{i}": f"g{i}" for i in range(15)}
    pools = list(make_pools(group, dict.fromkeys(group)).values())
    assert pools.count(Pool.CALIBRATION) == pools.count(Pool.HELDOUT) == 3


def test_folds_are_grouped_and_stratified() -> None:
    """Five folds, whole groups, both kinds in each, the same again."""
    group, answerable = questions()
    folds = make_folds(group, answerable)
    assert sorted(set(folds.values())) == [0, 1, 2, 3, 4]
    for fold in range(5):
        members = [q for q in group if folds[q] == fold]
        assert {answerable[q] for q in members} == {True, False}
        assert not {group[q] for q in members} & {group[q] for q in group if folds[q] != fold}
    assert folds == make_folds(group, answerable)
    assert folds.seed == 42
    assert folds.refused_seeds == ()


def test_one_class_folds_are_reseeded_and_recorded_or_refused() -> None:
    """Few unanswerable groups: some seeds fail and are named; too few: refused."""
    group = {f"q{i}": f"g{i % 24}" for i in range(240)}
    rare = {q: int(g[1:]) >= 6 for q, g in group.items()}
    found = [make_folds(group, rare, seed=seed) for seed in range(30)]
    for folds in found:
        kinds = {(f, rare[q]) for q, f in folds.items()}
        assert len(kinds) == 10
    with pytest.raises(UserError, match=r"no seed of 50.*3 unanswerable"):
        make_folds(group, {q: int(g[1:]) >= 3 for q, g in group.items()})


def test_as_many_folds_as_groups() -> None:
    """Exactly as many is allowed, one more is refused, for both kinds of benchmark."""
    group = {f"q{i}": f"g{i % 5}" for i in range(50)}
    mixed = {q: int(q[1:]) < 25 for q in group}
    for answerable in (mixed, dict.fromkeys(group)):
        folds = make_folds(group, answerable, n_folds=5)
        assert len({(group[q], f) for q, f in folds.items()}) == 5
        with pytest.raises(UserError, match="6 folds of 5 groups"):
            make_folds(group, answerable, n_folds=6)
    with pytest.raises(UserError, match="1 folds"):
        make_folds(group, mixed, n_folds=1)


def test_manifest_round_trip_and_refusals(tmp_path: Path) -> None:
    """Read back equal; another data set, a changed file and a missing one are refused."""
    group, answerable = questions()
    pools = make_pools(group, answerable)
    train = {q: g for q, g in group.items() if pools[q] == Pool.TRAIN}
    folds = make_folds(train, answerable)
    data = dataset_hash(group, answerable, {q: f"text {q}" for q in group})
    manifest = Manifest("clinic", data, 42, group, pools, folds)
    path = tmp_path / "pools" / "clinic.json"
    digest = write_manifest(path, manifest)
    again = read_manifest(path, data)
    assert again == manifest
    assert again.hash() == digest
    other = dataset_hash(group, answerable, {q: f"other {q}" for q in group})
    with pytest.raises(UserError, match="another data set"):
        read_manifest(path, other)
    text = json.loads(path.read_text())
    text["tasks"]["q0000"]["pool"] = "train" if pools["q0000"] != "train" else "heldout"
    path.write_text(json.dumps(text))
    with pytest.raises(UserError, match="changed after"):
        read_manifest(path)
    path.write_text("{")
    with pytest.raises(UserError, match="damaged"):
        read_manifest(path)
    with pytest.raises(UserError, match="no pool manifest"):
        read_manifest(tmp_path / "none.json")


def test_manifest_never_holds_a_torn_group(tmp_path: Path) -> None:
    """A group in two pools is a bug; the agent's own pool is cut by question and exempt."""
    group = {"a": "g", "b": "g"}
    torn = Manifest("w", "d", 1, group, {"a": Pool.TRAIN, "b": Pool.HELDOUT}, {})
    with pytest.raises(ValueError, match="two pools"):
        write_manifest(tmp_path / "m.json", torn)
    own = Manifest("w", "d", 1, group, {"a": Pool.TRAIN, "b": Pool.AGENT}, {})
    write_manifest(tmp_path / "m.json", own)


def test_the_papers_pools_come_from_a_table_of_its_counts() -> None:
    """10,440 questions in 195 groups (28 of them unanswerable) fall into 6,179 / 2,160 / 2,101.

    The order of the groups is the algorithm's; their sizes are made so that the paper's pools are
    possible. That they come out means: calibration is closed by the first group with which it holds
    a fifth of all questions, held-out by the next such one, and nothing else decides.
    """
    names = [f"a{i:03}" for i in range(167)] + [f"u{i:03}" for i in range(28)]
    order = sorted(names)
    np.random.Generator(np.random.PCG64(42)).shuffle(order)
    wanted = [(2160, 71), (2101, 60), (6179, 231)]
    fifth = 2088
    size: dict[str, int] = {}
    left = iter(order)
    for n, (total, without) in enumerate(wanted):
        # So many groups that each kind is there, the last one answerable and large enough to close.
        groups = list(islice(left, 39 if n < 2 else None))
        while n < 2 and groups[-1][0] == "u":
            groups.append(next(left))
        kinds = {k: [g for g in groups if g[0] == k] for k in "au"}
        for kind, questions in (("u", without), ("a", total - without)):
            share, over = divmod(questions, len(kinds[kind]))
            size |= {g: share + (i < over) for i, g in enumerate(kinds[kind])}
        more = total - fifth + 1 - size[groups[-1]] if n < 2 else 0
        if more > 0:  # move questions into the closing group, one from each other
            donors = [g for g in kinds["a"][:-1] if size[g] > 1]
            for i in range(more):
                size[donors[i % len(donors)]] -= 1
            size[groups[-1]] += more
    group = {f"{g}-{i:04}": g for g, n in size.items() for i in range(n)}
    answerable: dict[str, bool | None] = {q: q[0] == "a" for q in group}
    assert len(group) == 10_440
    assert len(size) == 195
    pools = make_pools(group, answerable)
    found = [
        (sum(p is pool for p in pools.values()),
         sum(p is pool and not answerable[q] for q, p in pools.items()))
        for pool in (Pool.CALIBRATION, Pool.HELDOUT, Pool.TRAIN)
    ]  # fmt: skip
    assert found == wanted
