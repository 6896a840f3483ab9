"""One draw of the splits: gates, search, policies of every target, and their test figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sentinel.cascade import baselines
from sentinel.cascade.certificate import recall_to_pass
from sentinel.cascade.choose import Choice, Requirement, choose, requirement
from sentinel.cascade.config import CascadeConfig
from sentinel.cascade.gates import Thresholds, fit_gates
from sentinel.cascade.play import outcome, play
from sentinel.cascade.policy import CascadePolicy, chosen
from sentinel.cascade.promise import Promise, by_certificate, by_chain, by_full_search
from sentinel.cascade.sample import in_pools, labelled, one_rollout, repeated
from sentinel.cascade.search import Searched, memory, search
from sentinel.cascade.table import Rounds
from sentinel.splits import PAPER_SHARES, STRICT_SHARES, Pool

ALLOCATIONS = ("cascade", "single-gate", "uniform", "no-op")


@dataclass(frozen=True)
class Sample:
    """The parts that one draw works on, outcomes known; each disjoint by task.

    `search` holds the episodes the margin searches on, `testing` those a chain or full search
    tests on, `certification` those of the certificate; the last two are empty where unused.
    """

    calibration: Rounds
    search: Rounds
    testing: Rounds
    certification: Rounds
    test: Rounds
    repeated: bool
    unlabelled: int


@dataclass(frozen=True)
class Target:
    """One target under one draw: the deployed policy, how it was found, how it fared."""

    target: str
    requirement: Requirement
    choice: Choice | None
    policy: CascadePolicy
    test: dict[str, Any]
    others: dict[str, dict[str, Any] | None]
    promise: Promise | None = None


@dataclass(frozen=True)
class Draw:
    """Everything of one draw; one search serves every target."""

    seed: int
    sample: Sample
    thresholds: Thresholds
    searched: Searched | None
    targets: tuple[Target, ...] = field(default=())


def sample(rounds: Rounds, config: CascadeConfig, seed: int) -> Sample:
    """Split the episodes of one cell as the mode and the method ask.

    Strict mode keeps one rollout per task in calibration and wherever a promise is tested; test
    figures use all rollouts. Certification joins testing for a chain or full search, is kept for
    the certificate, and joins test where nothing is promised.
    """
    strict = config.mode == "strict"
    shares = dict(STRICT_SHARES if strict else PAPER_SHARES)
    if strict and config.unseen_scorer:
        del shares[Pool.FIT]
    pools = in_pools(rounds, shares, seed, config.unit)

    def use(*names: Pool) -> Rounds:
        part = together([pools[p] for p in names if p in pools], rounds)
        if strict and config.rollouts == "one":
            part = one_rollout(part, seed, config.unit)
        return labelled(part)

    tests = [Pool.TEST]
    nothing = rounds.take(np.zeros(len(rounds), dtype=bool))
    testing, certification = nothing, nothing
    found = use(Pool.VALIDATION)
    if config.method == "certificate":
        certification = use(Pool.CERTIFICATION)
    elif config.method in ("fixed-sequence", "full-search"):
        testing = found = use(Pool.VALIDATION, Pool.CERTIFICATION)
    elif Pool.CERTIFICATION in pools:
        tests.append(Pool.CERTIFICATION)
    calibration = use(Pool.CALIBRATION)
    test = labelled(together([pools[p] for p in tests], rounds))
    parts = (calibration, found, certification)
    return Sample(
        calibration,
        found,
        testing,
        certification,
        test,
        any(repeated(p, config.unit) for p in parts),
        int((~rounds.labelled).sum()),
    )


def together(parts: Sequence[Rounds], rounds: Rounds) -> Rounds:
    """The episodes of several disjoint parts of `rounds`, in its order."""
    names = np.concatenate([p.episode for p in parts]) if parts else np.zeros(0, dtype=object)
    wanted = set(names)
    return rounds.take(np.array([e in wanted for e in rounds.episode], dtype=bool))


def draw(rounds: Rounds, config: CascadeConfig, seed: int) -> Draw:
    """Gates, one search, and every target of one split of one cell.

    Raises UserError for a pool that stays empty or a search that would not fit into memory.
    """
    parts = sample(rounds, config, seed)
    thresholds = config.given or fit_gates(
        parts.calibration, config.grid, config.alpha, config.gate
    )
    # A chain needs no table over all candidates: a grid too large for one loses its references.
    fits = memory(len(config.grid), config.gates) <= config.memory
    searched = None
    if fits or config.method != "fixed-sequence":
        searched = search(parts.search, thresholds, config.memory)
    targets = tuple(_target(t, parts, thresholds, searched, config) for t in config.targets)
    return Draw(seed, parts, thresholds, searched, targets)


def _target(
    target: str,
    parts: Sample,
    thresholds: Thresholds,
    searched: Searched | None,
    config: CascadeConfig,
) -> Target:
    asked = requirement(target, config.margin)
    promise: Promise | None = None
    choice: Choice | None = None
    if config.method == "fixed-sequence":
        promise = by_chain(parts.calibration, thresholds, parts.testing, target, config)
        taus, budget, reason = promise.thresholds, promise.budget, promise.reason
    elif config.method == "full-search":
        assert searched is not None
        promise = by_full_search(searched, thresholds, target, config)
        taus, budget, reason = promise.thresholds, promise.budget, promise.reason
    else:
        assert searched is not None
        if config.method == "certificate":
            n = parts.certification.successes
            asked = requirement(target, config.margin, recall_to_pass(n, target, config.promise))
        choice = by_margin(searched, asked)
        taus, budget, reason = _policy_of(searched, thresholds, choice)
        if choice.index is not None and all(tau is None for tau in taus):
            reason = _closed(thresholds) or (
                f"no budget that keeps {choice.needed} of {choice.successes} validation successes "
                "saves anything"
            )
        if config.method == "certificate":
            promise = by_certificate(taus, budget, parts.certification, target, config, reason)
            taus, budget, reason = promise.thresholds, promise.budget, promise.reason
    if promise is not None:
        promise = promise.under(config, parts.repeated, _declared(parts.calibration, config))
    policy = CascadePolicy(
        parts.test.cell,
        parts.test.scorer,
        config.mode,
        config.method,
        target,
        str(float(asked.margin)) if config.method in ("margin", "certificate") else None,
        taus,
        budget,
        config.gate,
        None if config.gate == "given" else config.alpha,
        config.after_feedback,
        promise is not None and promise.guaranteed,
        reason,
    )
    others = {
        name: _other(name, searched, thresholds, target, parts.test, config)
        for name in ("margin", *ALLOCATIONS[1:])
    }
    return Target(
        target, asked, choice, policy, outcome(play(taus, parts.test), parts.test), others, promise
    )


def _declared(calibration: Rounds, config: CascadeConfig) -> bool:
    """Has the user said which tasks the scorer saw: by the column pool, or in words?"""
    return config.unseen_scorer or bool((calibration.pool != "").any())


def by_margin(
    searched: Searched, asked: Requirement, among: np.ndarray[Any, np.dtype[np.intp]] | None = None
) -> Choice:
    """The budget that the margin's search deploys, or none with the reason."""
    if asked.reason is not None:
        return Choice(None, 0, searched.successes, reason=asked.reason)
    return choose(searched, asked.successes(searched.successes), among)


def _policy_of(
    searched: Searched, thresholds: Thresholds, choice: Choice
) -> tuple[tuple[float | None, ...], tuple[str, ...] | None, str | None]:
    if choice.index is None:
        return chosen(thresholds, None), None, choice.reason
    return (
        chosen(thresholds, searched.vector(choice.index)),
        searched.budget(choice.index),
        choice.reason,
    )


def _closed(thresholds: Thresholds) -> str | None:
    """Which gates no budget opens, and what they need; None where some gate is open."""
    few = thresholds.missing()
    if len(few) < thresholds.gates:
        return None
    return "too few calibration successes: " + ", ".join(
        f"gate {g['gate']} has {g['successes']} and needs {g['needs']} for budget {g['budget']}"
        for g in few
    )


def _other(
    name: str,
    searched: Searched | None,
    thresholds: Thresholds,
    target: str,
    test: Rounds,
    config: CascadeConfig,
) -> dict[str, Any] | None:
    """Test figures of a reference allocation under the margin; None where it has no candidate."""
    if name == "no-op":
        taus: tuple[float | None, ...] = chosen(thresholds, None)
        budget: tuple[str, ...] | None = None
    else:
        if searched is None:
            return None
        masks = {"single-gate": baselines.single_gate, "uniform": baselines.uniform}
        among = masks[name](searched) if name in masks else None
        if among is not None and not len(among):
            return None
        choice = by_margin(searched, requirement(target, config.margin), among)
        taus, budget, _ = _policy_of(searched, thresholds, choice)
    figures = outcome(play(taus, test), test)
    del figures["gates"]
    idle = all(tau is None for tau in taus)
    return {"budget": None if budget is None else list(budget), "aborts_nothing": idle, **figures}


def rows(found: Draw) -> list[dict[str, Any]]:
    """A draw's figures as flat rows, one per target and allocation: what a sweep over seeds keeps.

    `recall` is None without test successes; an allocation that aborts nothing (`no_op`) enters with
    recall 1 and savings 0.
    """
    out = []
    for t in found.targets:
        cascade = {**t.test, "aborts_nothing": t.policy.aborts_nothing}
        named = {"cascade": cascade, **{k: t.others[k] for k in ALLOCATIONS[1:]}}
        out += [
            {
                "seed": found.seed,
                "target": t.target,
                "allocation": name,
                "recall": figures["recall"],
                "savings": figures["savings"],
                "successes": figures["successes"],
                "no_op": figures["aborts_nothing"],
            }
            for name, figures in named.items()
            if figures is not None
        ]
    return out


def summary(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean ± sd over seeds of recall and savings, per target and allocation, in their order.

    ± is the spread of the splits, not an error of the mean. Seeds without test successes have no
    recall and are counted as `no_recall`.
    """
    keys = dict.fromkeys((r["target"], r["allocation"]) for r in found)
    out = []
    for target, allocation in keys:
        part = [r for r in found if (r["target"], r["allocation"]) == (target, allocation)]
        line: dict[str, Any] = {"target": target, "allocation": allocation, "seeds": len(part)}
        for name in ("recall", "savings"):
            values = [float(r[name]) for r in part if r[name] is not None]
            line[f"{name}_mean"] = float(np.mean(values)) if values else None
            line[f"{name}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
        line["no_recall"] = sum(r["recall"] is None for r in part)
        line["no_op"] = sum(bool(r["no_op"]) for r in part)
        out.append(line)
    return out
