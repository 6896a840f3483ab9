"""Groups, pools and folds: the only place that knows them (the paper, Section 4.1 and Appendix M).

A *group* is a question template; no group is ever in two pools or two folds, because the monitor
must be judged on templates it has not seen. Pools are assigned once per benchmark, folds once for
all agents.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from sentinel.errors import UserError

MANIFEST_VERSION = 1
RESEEDS = 50
"""How many seeds are tried before folds with one class are refused."""


class Pool(StrEnum):
    """Which part of the data a task belongs to; the last five are the abort cascade's."""

    AGENT = "agent"
    TRAIN = "train"
    CALIBRATION = "calibration"
    HELDOUT = "heldout"
    FIT = "fit"
    VALIDATION = "validation"
    CERTIFICATION = "certification"
    TEST = "test"


CASCADE_POOLS = (Pool.FIT, Pool.CALIBRATION, Pool.VALIDATION, Pool.CERTIFICATION, Pool.TEST)
PAPER_SHARES: Mapping[Pool, str] = {
    Pool.CALIBRATION: "0.2",
    Pool.VALIDATION: "0.2",
    Pool.TEST: "0.6",
}
"""The cascade's splits as published: every score is cross-fitted, nothing is guaranteed."""
STRICT_SHARES: Mapping[Pool, str] = {
    Pool.FIT: "0.3",
    Pool.CALIBRATION: "0.2",
    Pool.VALIDATION: "0.2",
    Pool.CERTIFICATION: "0.15",
    Pool.TEST: "0.15",
}
"""The cascade's splits that can carry a guarantee: scorers see the fit tasks only."""


class Folds(dict[str, int]):
    """Task id → fold, with the seed that gave it and the seeds refused for a one-class fold."""

    seed: int
    refused_seeds: tuple[int, ...]


def make_pools(
    group_of_task: Mapping[str, str],
    answerable: Mapping[str, bool | None],
    seed: int = 42,
    calibration: float | str = "0.2",
    heldout: float | str = "0.2",
) -> dict[str, Pool]:
    """Calibration, held-out and train pools of whole groups.

    Group ids are sorted, shuffled with PCG64(seed), and fill calibration until it holds at least
    the share `calibration` of the questions, then held-out likewise; the rest is train.

    Raises UserError for a pool without both answerable and unanswerable questions (where the notion
    applies: some `answerable` is not None), and for shares that leave no train pool.

    >>> groups = {f"q{i}": f"g{i % 10}" for i in range(100)}
    >>> kinds = {q: int(q[1:]) % 20 < 10 for q in groups}
    >>> pools = make_pools(groups, kinds)
    >>> [sum(p is pool for p in pools.values()) for pool in (Pool.CALIBRATION, Pool.HELDOUT)]
    [20, 20]
    """
    shares = (Fraction(str(calibration)), Fraction(str(heldout)))
    if min(shares) <= 0 or sum(shares) >= 1:
        raise UserError(
            f"pool shares {calibration} and {heldout} leave a pool empty",
            "give two positive shares with a sum below 1",
        )
    size = Counter(group_of_task.values())
    order = sorted(size)
    np.random.Generator(np.random.PCG64(seed)).shuffle(order)
    total = len(group_of_task)
    pool_of_group: dict[str, Pool] = {}
    groups = iter(order)
    for pool, share in zip((Pool.CALIBRATION, Pool.HELDOUT), shares, strict=True):
        filled = 0
        while filled < share * total and (group := next(groups, None)) is not None:
            pool_of_group[group] = pool
            filled += size[group]
    pools = {task: pool_of_group.get(group, Pool.TRAIN) for task, group in group_of_task.items()}
    refuse_one_kind(pools, answerable)
    return pools


def refuse_one_kind(pools: Mapping[str, Pool], answerable: Mapping[str, bool | None]) -> None:
    """Raise UserError where train, calibration or held-out lacks a kind of question.

    Where the notion does not apply (every `answerable` is None), only an empty pool is refused.
    Tasks of other pools do not matter.
    """
    kinds: dict[Pool, set[bool | None]] = {
        p: set() for p in (Pool.CALIBRATION, Pool.HELDOUT, Pool.TRAIN)
    }
    for task, pool in pools.items():
        if pool in kinds:
            kinds[pool].add(answerable[task])
    if set().union(*kinds.values()) == {None}:
        faults = [f"{pool} is empty" for pool, found in kinds.items() if not found]
    else:
        faults = [
            f"{pool} has no {name} question"
            for pool, found in kinds.items()
            for kind, name in ((True, "answerable"), (False, "unanswerable"))
            if kind not in found
        ]
    if faults:
        raise UserError(
            f"pools cannot be used: {', '.join(faults)}",
            "use more questions (a larger limit), or another splits seed",
        )


def make_folds(
    group_of_task: Mapping[str, str],
    answerable: Mapping[str, bool | None],
    n_folds: int = 5,
    seed: int = 42,
) -> Folds:
    """Cross-fitting folds of the train pool's tasks: grouped, stratified by answerability.

    A seed that gives a fold with one kind of question (or none) is passed over and recorded in
    `Folds.refused_seeds`; where no seed of the next 50 serves, UserError. More folds than groups
    are refused; exactly as many are allowed. Where every `answerable` is None, folds are only
    grouped.
    """
    tasks = sorted(group_of_task)
    groups = [group_of_task[t] for t in tasks]
    distinct = sorted(set(groups))
    if n_folds < 2 or n_folds > len(distinct):
        raise UserError(
            f"{n_folds} folds of {len(distinct)} groups",
            "ask for at least 2 folds and at most as many as there are groups",
        )
    kinds = [answerable[t] for t in tasks]
    stratified = any(k is not None for k in kinds)
    refused: list[int] = []
    for attempt in range(seed, seed + RESEEDS):
        fold_of = (_stratified if stratified else _balanced)(groups, kinds, n_folds, attempt)
        seen: dict[int, set[bool | None]] = defaultdict(set)
        for fold, kind in zip(fold_of, kinds, strict=True):
            seen[fold].add(kind)
        needed = {True, False} if stratified else {None}
        if len(seen) == n_folds and all(needed <= found for found in seen.values()):
            folds = Folds(zip(tasks, fold_of, strict=True))
            folds.seed, folds.refused_seeds = attempt, tuple(refused)
            return folds
        refused.append(attempt)
    holding = {
        k: len({g for g, a in zip(groups, kinds, strict=True) if a is k}) for k in (True, False)
    }
    raise UserError(
        f"no seed of {RESEEDS} gives {n_folds} folds with both kinds of question "
        f"({holding[True]} groups hold answerable, {holding[False]} unanswerable questions)",
        "use fewer folds or more questions",
    )


def _stratified(groups: list[str], kinds: list[bool | None], n_folds: int, seed: int) -> list[int]:
    from sklearn.model_selection import StratifiedGroupKFold

    labels = np.array([bool(k) for k in kinds])
    if np.bincount(labels.astype(int), minlength=2).max() < n_folds:
        return [0] * len(groups)  # scikit-learn raises here; the caller refuses it
    splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed % 2**32)
    fold_of = np.zeros(len(groups), dtype=int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a rare class: checked by the caller
        for fold, (_, members) in enumerate(splitter.split(labels, labels, groups)):
            fold_of[members] = fold
    return [int(f) for f in fold_of]


def _balanced(groups: list[str], kinds: list[bool | None], n_folds: int, seed: int) -> list[int]:
    size = Counter(groups)
    order = sorted(size)
    np.random.Generator(np.random.PCG64(seed)).shuffle(order)
    order.sort(key=lambda g: -size[g])  # stable: the shuffle decides among equals
    load = [0] * n_folds
    fold_of_group: dict[str, int] = {}
    for group in order:
        fold = load.index(min(load))
        fold_of_group[group] = fold
        load[fold] += size[group]
    return [fold_of_group[g] for g in groups]


def split_tasks(tasks: Iterable[str], shares: Mapping[Pool, str], seed: int) -> dict[str, Pool]:
    """Pools of the abort cascade, drawn by seed over distinct tasks (or groups).

    Ids are sorted, shuffled with PCG64(seed), and fill each pool but the last until it holds at
    least its share of the shares' sum; the last takes the rest. Raises UserError where a pool stays
    empty.

    >>> from collections import Counter
    >>> pools = split_tasks((f"t{i}" for i in range(10)), PAPER_SHARES, seed=0)
    >>> [Counter(pools.values())[pool] for pool in PAPER_SHARES]
    [2, 2, 6]
    """
    order = sorted(set(tasks))
    np.random.Generator(np.random.PCG64(seed)).shuffle(order)
    parts = {pool: Fraction(share) for pool, share in shares.items()}
    total = sum(parts.values())
    found: dict[str, Pool] = {}
    left = iter(order)
    for pool, share in list(parts.items())[:-1]:
        for _ in range(-(-len(order) * share // total)):
            if (task := next(left, None)) is not None:
                found[task] = pool
    last = list(parts)[-1]
    found.update(dict.fromkeys(left, last))
    empty = [str(pool) for pool in parts if pool not in set(found.values())]
    if empty:
        raise UserError(
            f"{len(order)} tasks leave the pools {', '.join(empty)} empty",
            "use more tasks, or give the column pool yourself",
        )
    return {task: found[task] for task in sorted(found)}


@dataclass(frozen=True)
class Manifest:
    """Who is in which pool and fold, for one data set; the ledger of the held-out pool sits beside
    it."""

    benchmark: str
    dataset: str
    """Hash of the data set the manifest was made for (`dataset_hash`)."""
    seed: int
    group: Mapping[str, str]
    pool: Mapping[str, Pool]
    fold: Mapping[str, int]

    def content(self) -> dict[str, Any]:
        """What the hash covers, as JSON-able values."""
        return {
            "version": MANIFEST_VERSION,
            "benchmark": self.benchmark,
            "dataset": self.dataset,
            "seed": self.seed,
            "tasks": {
                task: {
                    "group": self.group[task],
                    "pool": str(self.pool[task]),
                    "fold": self.fold.get(task),
                }
                for task in sorted(self.group)
            },
        }

    def hash(self) -> str:
        """sha256 of the canonical JSON of the content."""
        return _sha256(self.content())


def dataset_hash(
    group_of_task: Mapping[str, str],
    answerable: Mapping[str, bool | None],
    text_of_task: Mapping[str, str] | None = None,
) -> str:
    """Identity of a data set: its task ids, groups, answerability and (if given) texts."""
    texts = text_of_task or {}
    rows = [[t, group_of_task[t], answerable[t], texts.get(t)] for t in sorted(group_of_task)]
    return _sha256(rows)


def write_manifest(path: str | os.PathLike[str], manifest: Manifest) -> str:
    """Write the manifest (temporary name, then rename) and return its hash.

    Raises ValueError when a group is in two pools or in two folds: a bug, never a user's mistake.
    The agent's own pool is disjoint by question, not by group, and is exempt.
    """
    where: dict[str, set[tuple[Pool, int | None]]] = defaultdict(set)
    for task, group in manifest.group.items():
        if manifest.pool[task] != Pool.AGENT:
            where[group].add((manifest.pool[task], manifest.fold.get(task)))
    torn = sorted(group for group, places in where.items() if len(places) > 1)
    if torn:
        raise ValueError(f"groups in two pools or folds: {', '.join(torn[:10])}")
    digest = manifest.hash()
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    text = json.dumps({**manifest.content(), "hash": digest}, indent=1, ensure_ascii=False)
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)
    return digest


def read_manifest(path: str | os.PathLike[str], dataset: str | None = None) -> Manifest:
    """Read a manifest back; with `dataset`, refuse one that was made for other data.

    Raises UserError for a file that is missing, damaged (its hash does not match), of another
    version, or of another data set.
    """
    again = f"remove {path} to draw the pools anew, or restore it"
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        digest = data.pop("hash")
        tasks = data["tasks"]
        manifest = Manifest(
            data["benchmark"],
            data["dataset"],
            data["seed"],
            {t: row["group"] for t, row in tasks.items()},
            {t: Pool(row["pool"]) for t, row in tasks.items()},
            {t: row["fold"] for t, row in tasks.items() if row["fold"] is not None},
        )
    except FileNotFoundError as error:
        raise UserError(f"no pool manifest at {path}", "run the stage that makes it") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"pool manifest {path} is damaged ({error})", again) from error
    if data.get("version") != MANIFEST_VERSION:
        raise UserError(f"pool manifest {path} is of version {data.get('version')}", again)
    if manifest.hash() != digest:
        raise UserError(f"pool manifest {path} was changed after it was written", again)
    if dataset is not None and manifest.dataset != dataset:
        raise UserError(f"pool manifest {path} was made for another data set", again)
    return manifest


def _sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
