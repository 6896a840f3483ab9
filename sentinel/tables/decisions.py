"""Tables of the decision layers: the two that users may bring, and what comes out."""

from __future__ import annotations

from dataclasses import replace

from sentinel.tables.schema import (
    BOOL,
    EPISODE,
    FLOAT,
    INT,
    STRING,
    WHERE,
    Table,
    exact,
    maybe,
    numeric,
    volatile,
)
from sentinel.tables.stages import FEATURES

PREFIX_SCORES = Table(
    "prefix_scores",
    ("agent", "episode_id", "t"),
    {
        "agent": exact(STRING, "name of the agent (optional for users: 'agent')"),
        "episode_id": exact(STRING, "one per question"),
        "group": exact(STRING, "question template: the cluster of every interval"),
        "pool": exact(STRING, "train, calibration or heldout"),
        "t": exact(INT, "prefix length, 0…T"),
        "T": exact(INT, "turns of the episode"),
        "answerable": exact(BOOL, "the question has an answer in the database"),
        "answered": exact(BOOL, "the agent committed an answer"),
        "correct": maybe(BOOL, "primary label; null where the agent committed none"),
        "p_answerable": numeric(
            FLOAT, "1 − sigmoid(logit) of the answerability head; null never exits"
        ),
        "p_correct": numeric(FLOAT, "sigmoid(logit) of the correctness head, raw"),
        **{name: numeric(FLOAT, "optional for users") for name in FEATURES},
        "tokens_so_far": maybe(INT, "generated tokens of turns 1…t"),
        "seconds_so_far": volatile(FLOAT, "seconds of turns 1…t"),
    },
)
PREFIX_SCORES_OPTIONAL = ("agent", *FEATURES, "tokens_so_far", "seconds_so_far")

ROUND_SCORES = Table(
    "round_scores",
    ("cell", "scorer", "episode_id", "round"),
    {
        "cell": exact(STRING, "task set × agent (optional for users: 'cell')"),
        "scorer": exact(STRING, "what gave the score (optional for users: 'scorer')"),
        "episode_id": exact(STRING, "one per rollout"),
        "task_id": exact(STRING, "the task: what is split, and what counts as independent"),
        "group": exact(STRING, "the task's group"),
        "pool": maybe(STRING, "fit, calibration, validation, certification or test (optional)"),
        "round": exact(INT, "r = 1…T; rounds after the last gate may be left out"),
        "rounds_total": exact(INT, "T: rounds of the episode by its own end"),
        "score": numeric(FLOAT, "f_r: larger means likelier to fail; null passes every gate"),
        "cost": exact(INT, "c_r: cumulative cost through round r, an integer unit"),
        "cost_total": exact(INT, "C: cost of the whole episode, the cost of round T"),
        "success": maybe(BOOL, "y; null without an outcome (left out and counted)"),
    },
)
ROUND_SCORES_OPTIONAL = ("cell", "scorer", "pool")
ROUND_SCORES_BY_MODE = {
    mode: replace(ROUND_SCORES, name=f"round_scores_{mode}") for mode in ("paper", "strict")
}
"""A run keeps one table per mode: cross-fitted scores, and those of probes from fit tasks."""

CASCADE_ROWS = Table(
    "cascade_rows",
    ("cell", "scorer", "mode", "seed", "target", "allocation"),
    {
        "cell": exact(STRING, "task set × agent"),
        "scorer": exact(STRING, "what gave the score"),
        "mode": exact(STRING, "strict or paper"),
        "method": exact(STRING, "fixed-sequence, full-search, certificate or margin"),
        "seed": exact(INT, "of the splits and rollouts"),
        "target": exact(STRING, "ρ* as a decimal"),
        "allocation": exact(STRING, "cascade, single-gate, uniform or no-op"),
        "recall": maybe(FLOAT, "share of the test successes kept; null without any"),
        "savings": maybe(FLOAT, "share of the test cost saved; null without any cost"),
        "successes": exact(INT, "test episodes with y = 1"),
        "no_op": exact(BOOL, "it aborts nothing"),
    },
)

CASCADE_MARGINS = Table(
    "cascade_margins",
    ("cell", "scorer", "mode", "seed", "target", "margin"),
    {
        "cell": exact(STRING, "task set × agent"),
        "scorer": exact(STRING, "what gave the score"),
        "mode": exact(STRING, "strict or paper"),
        "seed": exact(INT, "of the splits"),
        "target": exact(STRING, "ρ* as a decimal"),
        "margin": exact(STRING, "δ as asked, a decimal"),
        "margin_used": exact(FLOAT, "after the cut for strict targets"),
        "recall": maybe(FLOAT, "share of the test successes kept; null without any"),
        "savings": maybe(FLOAT, "share of the test cost saved; null without any cost"),
        "successes": exact(INT, "test episodes with y = 1"),
        "kept": exact(INT, "of those, kept"),
        "below": maybe(BOOL, "recall < target, exactly; null without test successes"),
        "no_op": exact(BOOL, "it aborts nothing"),
        "reason": maybe(STRING, "why it aborts nothing"),
    },
)

DECISIONS = Table(
    "decisions",
    ("benchmark", "agent", "episode_id", "system", "lam"),
    {
        **EPISODE,
        "group": exact(STRING, "cluster"),
        "system": exact(STRING, "vanilla, gate, chow, full, early-exit, exact-bar"),
        "lam": exact(FLOAT, "λ"),
        "exit_time": exact(INT, "e: turns actually run"),
        "exit_by": maybe(STRING, "gate, stop, chow or null"),
        "delivered": exact(BOOL, "an answer left the system"),
        "reward": exact(FLOAT, "RS(λ) of this question"),
        "p": numeric(FLOAT, "calibrated probability at delivery; null where none was read"),
    },
)

BOOTSTRAP_DRAWS = Table(
    "bootstrap_draws",
    ("benchmark", "agent", "statistic", "system", "stratum", "resample"),
    {
        **WHERE,
        "statistic": exact(STRING, "as in `intervals`"),
        "system": exact(STRING, "as in `intervals`"),
        "stratum": exact(STRING, "as in `intervals`"),
        "resample": exact(INT, "row of the resampling weights, from 0"),
        "value": maybe(FLOAT, "the statistic of that resample; null where it is undefined"),
    },
)

INTERVALS = Table(
    "intervals",
    ("benchmark", "agent", "statistic", "system", "lam", "stratum"),
    {
        **WHERE,
        "statistic": exact(STRING, "what was estimated, e.g. rs_minus_abstain"),
        "system": exact(STRING, "the system, or '-'"),
        "lam": exact(FLOAT, "λ, or −1 where it does not apply"),
        "stratum": exact(STRING, "share π, step t, … or '-'"),
        "point": numeric(FLOAT, "point estimate; null where undefined"),
        "low": numeric(FLOAT, "2.5 % percentile; null without an interval"),
        "high": numeric(FLOAT, "97.5 % percentile"),
        "n": exact(INT, "rows"),
        "clusters": exact(INT, "groups with a non-zero difference, or groups"),
        "resamples": exact(INT, "kept resamples"),
        "dropped": exact(INT, "resamples dropped because the statistic was undefined"),
        "note": maybe(STRING, "e.g. too few groups"),
    },
)
