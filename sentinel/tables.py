"""The schema of every table, in one place: names, types, keys, units, and what "equal" means.

A column marked `volatile` (times, worker, host, attempt) never takes part in a comparison; one
marked `numeric` (log-probabilities, scores) may differ by 1e-4, because the composition of a batch
changes floats; one marked `ranked` (ids of the likeliest tokens) where two ranks nearly tie.
Everything else agrees exactly or the runs differ. An unknown or missing column is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

VERSION = "1"
NUMERIC_TOLERANCE = 1e-4
TIE_GAP = 1e-3
"""Top-2 gap in nats under which two engines may choose different tokens."""

FEATURES = (
    "lp_mean",
    "lp_min",
    "ent_mean",
    "ent_max",
    "empty_rate",
    "error_rate",
    "n_steps",
    "failed_refs",
    "bad_joins",
    "ungrounded_frac",
)
ENDS = (
    "answered",
    "abstained",
    "cap",
    "stopped",
    "refused",
    "context",
    "content_filter",
    "env_error",
    "engine_error",
)
OUTCOME_ENDS = ("answered", "abstained", "cap")
"""Ends that give an outcome; the others leave every metric of that agent and are counted."""


class TableError(ValueError):
    """A table that does not have the declared columns, types or keys."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its Arrow type, a line of documentation, and how it is compared."""

    type: pa.DataType
    doc: str
    nullable: bool = False
    kind: str = "exact"  # exact | numeric | volatile | ranked


@dataclass(frozen=True, slots=True)
class Table:
    """A declared table: ordered columns and the key that sorts and identifies its rows."""

    name: str
    key: tuple[str, ...]
    columns: Mapping[str, Column]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, with the table's name and version in its metadata."""
        fields = [pa.field(name, c.type, nullable=c.nullable) for name, c in self.columns.items()]
        return pa.schema(fields, metadata={"table": self.name, "version": VERSION})

    def from_rows(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Rows (mappings with exactly the declared keys) as a checked table.

        Raises TableError on an unknown or missing key: `pa.Table.from_pylist` would drop them.
        """
        for row in rows:
            if row.keys() != self.columns.keys():
                self._refuse(row.keys())
        try:
            columns = [
                pa.array([row[name] for row in rows], type=c.type)
                for name, c in self.columns.items()
            ]
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise TableError(f"table {self.name}: {error}") from error
        return self.check(pa.Table.from_arrays(columns, schema=self.schema))

    def empty(self) -> pa.Table:
        """No rows, all columns."""
        return self.schema.empty_table()

    def check(self, table: pa.Table, *, extra: Iterable[str] = ()) -> pa.Table:
        """The same table, columns in declared order; raises TableError with every fault at once."""
        allowed = set(extra)
        names = [n for n in table.column_names if n not in allowed]
        if set(names) != set(self.columns) or len(names) != len(set(names)):
            self._refuse(names)
        faults = []
        for name, column in self.columns.items():
            values = table.column(name)
            if values.type != column.type:
                faults.append(f"{name} is {values.type}, not {column.type}")
            elif not column.nullable and values.null_count:
                faults.append(f"{name} has {values.null_count} nulls")
        if faults:
            raise TableError(f"table {self.name}: {'; '.join(faults)}")
        return table.select(list(self.columns)).cast(self.schema)

    def sort(self, table: pa.Table) -> pa.Table:
        """Rows in key order, whatever order the workers finished in."""
        return table.sort_by([(name, "ascending") for name in self.key])

    def _refuse(self, names: Iterable[str]) -> None:
        names = list(names)
        missing = [n for n in self.columns if n not in names]
        unknown = [n for n in names if n not in self.columns]
        twice = sorted({n for n in names if names.count(n) > 1})
        parts = [
            f"{what} columns: {', '.join(found)}"
            for what, found in (("missing", missing), ("unknown", unknown), ("repeated", twice))
            if found
        ]
        raise TableError(
            f"table {self.name}: {'; '.join(parts)} (declared: {', '.join(self.columns)})"
        )


_S, _I, _F, _B = pa.string(), pa.int64(), pa.float64(), pa.bool_()


def _exact(type: pa.DataType, doc: str, nullable: bool = False) -> Column:
    return Column(type, doc, nullable)


def _maybe(type: pa.DataType, doc: str) -> Column:
    return Column(type, doc, nullable=True)


def _numeric(type: pa.DataType, doc: str) -> Column:
    return Column(type, doc, nullable=True, kind="numeric")


def _volatile(type: pa.DataType, doc: str) -> Column:
    return Column(type, doc, nullable=True, kind="volatile")


_WHERE = {
    "benchmark": _exact(_S, "name of the benchmark"),
    "agent": _exact(_S, "name of the agent"),
}
_EPISODE = {**_WHERE, "episode_id": _exact(_S, "benchmark/agent/task_id/rollout")}

TASKS = Table(
    "tasks",
    ("benchmark", "task_id"),
    {
        "benchmark": _exact(_S, "name of the benchmark"),
        "task_id": _exact(_S, "id within the benchmark"),
        "group": _exact(_S, "question template or goal item; never in two pools or folds"),
        "pool": _exact(_S, "splits.Pool"),
        "fold": _maybe(_I, "cross-fitting fold of a train task; null elsewhere"),
        "text": _exact(_S, "the question or goal"),
        "answerable": _maybe(_B, "null where the notion does not apply"),
        "gold": _maybe(_S, "reference action (SQL), if any"),
        "meta": _exact(_S, "canonical JSON of what else the benchmark knows"),
    },
)

EPISODES = Table(
    "episodes",
    ("benchmark", "agent", "episode_id"),
    {
        **_EPISODE,
        "task_id": _exact(_S, "the task"),
        "group": _exact(_S, "the task's group"),
        "rollout": _exact(_I, "0-based repetition of the task"),
        "end": _exact(_S, f"one of {', '.join(ENDS)}"),
        "turns": _exact(_I, "T: agent turns, the final one included"),
        "action": _maybe(_S, "the committed final action, as the model wrote it"),
        "answer": _maybe(_S, "its executed result, typed JSON; null when it raised"),
        "answer_error": _maybe(_S, "why the committed action gave no result"),
        "success": _maybe(_B, "the environment's own verdict"),
        "error": _maybe(_S, "cause of an end without an outcome"),
        "prefix_property": _maybe(_B, "every prompt extended the last; null for APIs"),
        "prompt_tokens": _exact(_I, "summed over turns, each full prompt counted"),
        "generated_tokens": _exact(_I, "summed over turns"),
        "agent_hash": _exact(_S, "hash of the agent's config and weights"),
        "engine": _exact(_S, "engine, version and model revision"),
        "cost_usd": _maybe(_F, "price paid; null for local engines"),
        "seconds": _volatile(_F, "wall seconds of the episode"),
        "started_at": _volatile(_F, "Unix time"),
        "worker": _volatile(_S, "the worker that ran it"),
        "host": _volatile(_S, "the node that ran it"),
        "attempt": _volatile(_I, "1 for the first try"),
    },
)

_INTS, _FLOATS = pa.list_(pa.int32()), pa.list_(pa.float32())

TURNS = Table(
    "turns",
    ("benchmark", "agent", "episode_id", "turn"),
    {
        **_EPISODE,
        "turn": _exact(_I, "1…T"),
        "prompt_ids": _maybe(
            _INTS, "what the prompt adds to prompt and generation of the last turn"
        ),
        "prompt_is_full": _exact(_B, "prompt_ids is the whole prompt (turn 1, or a broken prefix)"),
        "generated_ids": _maybe(_INTS, "ids the engine produced, end-of-turn excluded"),
        "finish_reason": _exact(_S, "stop, length, …"),
        "text": _exact(_S, "what the model wrote"),
        "kind": _exact(_S, "act, final, abstain or malformed"),
        "thought": _exact(_S, "parsed thought"),
        "action": _exact(_S, "parsed action, raw text"),
        "best_so_far": _maybe(_S, "parsed BEST_SO_FAR"),
        "forgiven": _exact(pa.list_(_S), "what the parser forgave, by name"),
        "observation": _exact(_S, "what the agent was shown"),
        "rendered": _exact(_S, "what the heads read of the observation"),
        "status": _exact(_S, "ok, empty, error, malformed or none"),
        "n_rows": _maybe(_I, "rows of the executed result"),
        "n_cols": _maybe(_I, "columns of the executed result"),
        "prompt_tokens": _exact(_I, "length of the full prompt"),
        "generated_tokens": _exact(_I, "n"),
        "logprobs": _numeric(_FLOATS, "(n,) raw log-probability of each chosen token, nats"),
        "top_ids": Column(_INTS, "(n·5,) ids of the five likeliest tokens", True, "ranked"),
        "top_logprobs": _numeric(_FLOATS, "(n·5,) their log-probabilities, descending"),
        "engine_seconds": _volatile(_F, "time in the engine"),
        "env_seconds": _volatile(_F, "time in the environment"),
    },
)

LABELS = Table(
    "labels",
    ("benchmark", "agent", "episode_id", "label"),
    {
        **_EPISODE,
        "label": _exact(_S, "strict-2022, strict-2024, typed, judge:MODEL:PROMPT-HASH, success"),
        "correct": _maybe(_B, "null where there is no verdict"),
        "source": _exact(_S, "rule that decided: match, abstained, unanswerable, failed-gold, …"),
        "version": _exact(_S, "version of the scorer"),
        "error": _maybe(_S, "why there is no verdict"),
    },
)

FEATURE_ROWS = Table(
    "features",
    ("benchmark", "agent", "episode_id", "t"),
    {
        **_EPISODE,
        "t": _exact(_I, "prefix length, 0…T"),
        **{
            name: _numeric(_F, "`sentinel.features`; null is missing, never neutral")
            for name in FEATURES
        },
        "tokens_so_far": _exact(_I, "generated tokens of turns 1…t"),
        "seconds_so_far": _volatile(_F, "engine and environment seconds of turns 1…t"),
    },
)

SCORES = Table(
    "scores",
    ("benchmark", "agent", "episode_id", "t", "head"),
    {
        **_EPISODE,
        "t": _exact(_I, "prefix length, 0…T"),
        "head": _exact(_S, "answerability or correctness"),
        "logit": _numeric(_F, "float64 logit; null where the head could not be fitted"),
        "fold": _maybe(_I, "the fold whose head scored it; null for the final pair"),
        "truncated": _exact(_B, "the rendered prefix did not fit the window"),
    },
)

PREFIX_SCORES = Table(
    "prefix_scores",
    ("agent", "episode_id", "t"),
    {
        "agent": _exact(_S, "name of the agent (optional for users: 'agent')"),
        "episode_id": _exact(_S, "one per question"),
        "group": _exact(_S, "question template: the cluster of every interval"),
        "pool": _exact(_S, "train, calibration or heldout"),
        "t": _exact(_I, "prefix length, 0…T"),
        "T": _exact(_I, "turns of the episode"),
        "answerable": _exact(_B, "the question has an answer in the database"),
        "answered": _exact(_B, "the agent committed an answer"),
        "correct": _maybe(_B, "primary label; null where the agent committed none"),
        "p_answerable": _numeric(
            _F, "1 − sigmoid(logit) of the answerability head; null never exits"
        ),
        "p_correct": _numeric(_F, "sigmoid(logit) of the correctness head, raw"),
        **{name: _numeric(_F, "optional for users") for name in FEATURES},
        "tokens_so_far": _maybe(_I, "generated tokens of turns 1…t"),
        "seconds_so_far": _volatile(_F, "seconds of turns 1…t"),
    },
)
PREFIX_SCORES_OPTIONAL = ("agent", *FEATURES, "tokens_so_far", "seconds_so_far")

ROUND_SCORES = Table(
    "round_scores",
    ("cell", "scorer", "episode_id", "round"),
    {
        "cell": _exact(_S, "task set × agent (optional for users: 'cell')"),
        "scorer": _exact(_S, "what gave the score (optional for users: 'scorer')"),
        "episode_id": _exact(_S, "one per rollout"),
        "task_id": _exact(_S, "the task: what is split, and what counts as independent"),
        "group": _exact(_S, "the task's group"),
        "pool": _maybe(_S, "fit, calibration, validation, certification or test (optional)"),
        "round": _exact(_I, "r = 1…T; rounds after the last gate may be left out"),
        "rounds_total": _exact(_I, "T: rounds of the episode by its own end"),
        "score": _numeric(_F, "f_r: larger means likelier to fail; null passes every gate"),
        "cost": _exact(_I, "c_r: cumulative cost through round r, an integer unit"),
        "cost_total": _exact(_I, "C: cost of the whole episode, the cost of round T"),
        "success": _maybe(_B, "y; null without an outcome (left out and counted)"),
    },
)
ROUND_SCORES_OPTIONAL = ("cell", "scorer", "pool")

DECISIONS = Table(
    "decisions",
    ("benchmark", "agent", "episode_id", "system", "lam"),
    {
        **_EPISODE,
        "group": _exact(_S, "cluster"),
        "system": _exact(_S, "vanilla, gate, chow, full, early-exit, exact-bar"),
        "lam": _exact(_F, "λ"),
        "exit_time": _exact(_I, "e: turns actually run"),
        "exit_by": _maybe(_S, "gate, stop, chow or null"),
        "delivered": _exact(_B, "an answer left the system"),
        "reward": _exact(_F, "RS(λ) of this question"),
        "p": _numeric(_F, "calibrated probability at delivery; null where none was read"),
    },
)

INTERVALS = Table(
    "intervals",
    ("benchmark", "agent", "statistic", "system", "lam", "stratum"),
    {
        **_WHERE,
        "statistic": _exact(_S, "what was estimated, e.g. rs_minus_abstain"),
        "system": _exact(_S, "the system, or '-'"),
        "lam": _exact(_F, "λ, or −1 where it does not apply"),
        "stratum": _exact(_S, "share π, step t, … or '-'"),
        "point": _numeric(_F, "point estimate; null where undefined"),
        "low": _numeric(_F, "2.5 % percentile; null without an interval"),
        "high": _numeric(_F, "97.5 % percentile"),
        "n": _exact(_I, "rows"),
        "clusters": _exact(_I, "groups with a non-zero difference, or groups"),
        "resamples": _exact(_I, "kept resamples"),
        "dropped": _exact(_I, "resamples dropped because the statistic was undefined"),
        "note": _maybe(_S, "e.g. too few groups"),
    },
)

ALL = {
    t.name: t
    for t in (
        TASKS,
        EPISODES,
        TURNS,
        LABELS,
        FEATURE_ROWS,
        SCORES,
        PREFIX_SCORES,
        ROUND_SCORES,
        DECISIONS,
        INTERVALS,
    )
}


def diff(name: str, left: pa.Table, right: pa.Table) -> list[str]:
    """Differences between two tables of one schema, one line each; empty means *equal*.

    Rows are matched by key. Where generated ids differ, the first difference must be a tie
    (top-2 gap below 1e-3) to be tolerated; it is still listed, with the word `tie`, and the rest of
    that turn and episode is not compared further.
    """
    spec = ALL[name]
    left, right = spec.sort(spec.check(left)), spec.sort(spec.check(right))
    lkeys, rkeys = _keys(spec, left), _keys(spec, right)
    if lkeys != rkeys:
        only_left, only_right = sorted(set(lkeys) - set(rkeys)), sorted(set(rkeys) - set(lkeys))
        lines = [f"{name}: only left: {k}" for k in only_left[:20]]
        lines += [f"{name}: only right: {k}" for k in only_right[:20]]
        return lines or [f"{name}: repeated keys"]
    ties = _ties(left, right, lkeys) if name == "turns" else {}
    skipped = {key[:3] for key in ties}
    tops: dict[tuple[Any, ...], Any] = {}
    if name == "turns":
        tops = dict(zip(lkeys, left.column("top_logprobs").to_pylist(), strict=True))
    lines = [f"turns: tie at {'/'.join(map(str, key))}: token {at}" for key, at in ties.items()]
    for column, spec_column in spec.columns.items():
        if spec_column.kind == "volatile":
            continue
        lvalues, rvalues = left.column(column), right.column(column)
        if lvalues.equals(rvalues):
            continue
        pairs = zip(lkeys, lvalues.to_pylist(), rvalues.to_pylist(), strict=True)
        for key, a, b in pairs:
            if key[:3] in skipped or _same(a, b, spec_column.kind == "numeric"):
                continue
            if spec_column.kind == "ranked" and _same_ranks(a, b, tops.get(key)):
                continue
            lines.append(f"{name}.{column} at {'/'.join(map(str, key))}: {a!r:.80} != {b!r:.80}")
    return lines


def _keys(spec: Table, table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(n).to_pylist() for n in spec.key), strict=True))


def _same(a: Any, b: Any, numeric: bool) -> bool:
    if not numeric or a is None or b is None:
        return bool(a == b)
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return x.shape == y.shape and bool(
        np.allclose(x, y, rtol=0.0, atol=NUMERIC_TOLERANCE, equal_nan=True)
    )


def _same_ranks(a: Any, b: Any, logprobs: Any) -> bool:
    """Whether two lists of top ids differ only where the order hangs on less than a tie's gap.

    The last of the five may have lost its place to a sixth that nobody recorded; that its
    log-probability agrees is checked by its own column.
    """
    if a is None or b is None or logprobs is None or len(a) != len(b):
        return False
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        rank = i % 5
        near_previous = rank > 0 and logprobs[i - 1] - logprobs[i] < TIE_GAP
        near_next = rank == 4 or logprobs[i] - logprobs[i + 1] < TIE_GAP
        if x != y and not near_previous and not near_next:
            return False
    return True


def _ties(
    left: pa.Table, right: pa.Table, keys: Sequence[tuple[Any, ...]]
) -> dict[tuple[Any, ...], int]:
    """Turn key → position of a tolerated first difference in the generated ids."""
    found: dict[tuple[Any, ...], int] = {}
    columns = zip(
        keys,
        left.column("generated_ids").to_pylist(),
        right.column("generated_ids").to_pylist(),
        left.column("top_logprobs").to_pylist(),
        strict=True,
    )
    for key, a, b, tops in columns:
        if a == b or a is None or b is None or any(k[:3] == key[:3] for k in found):
            continue
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        if at is not None and tops and tops[5 * at] - tops[5 * at + 1] < TIE_GAP:
            found[key] = at
    return found
