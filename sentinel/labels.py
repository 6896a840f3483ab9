"""Verdicts on finished episodes, one per (episode, label).

Labels: `strict-2022` and `strict-2024` (the two official execution matches, which disagree),
`typed` (typed equivalence of whole tables, no judge), `success` (the environment's own verdict).
A judge's verdicts, alone called semantic, are `judge:MODEL:PROMPT-HASH` (`sentinel/judge/`).
Whatever the label: an abstention is correct iff the question is unanswerable, an answer to an
unanswerable question is wrong without comparison, and a committed query that raised is wrong. A
reference query that fails leaves no verdict; an episode without an outcome leaves none either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sentinel.errors import UserError
from sentinel.judge.prompt import PREFIX
from sentinel.tables import OUTCOME_ENDS

if TYPE_CHECKING:
    import pyarrow as pa

    from sentinel.sql.result import Result

SQL_LABELS = ("strict-2022", "strict-2024", "typed")
SUCCESS = "success"


@dataclass(frozen=True, slots=True)
class Gold:
    """The reference of one task: its executed result, and whether its rows are ordered."""

    result: Result
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """`correct` is None where there is no verdict, and then `error` says why."""

    correct: bool | None
    source: str
    error: str | None = None


def judge(label: str, episode: Any, answerable: bool | None, gold: Gold | None) -> Verdict:
    """The verdict of one label on one episode (a row of `episodes` or an `Episode`).

    Raises ValueError for an unknown label.
    """
    if label not in (*SQL_LABELS, SUCCESS):
        known = ", ".join((*SQL_LABELS, SUCCESS))
        raise ValueError(f"unknown label {label!r} (known: {known})")
    if episode.end not in OUTCOME_ENDS:
        return Verdict(None, "no-outcome", f"the episode ended as {episode.end}")
    if label == SUCCESS:
        if episode.success is None:
            return Verdict(None, "environment", "the environment gave no verdict")
        return Verdict(episode.success, "environment")
    if answerable is None:
        return Verdict(None, "no-reference", "the task does not say whether it has an answer")
    if episode.end != "answered":
        return Verdict(not answerable, episode.end)
    if not answerable:
        return Verdict(False, "unanswerable")
    if episode.answer is None:
        return Verdict(False, "failed-answer")
    if gold is None:
        return Verdict(None, "no-reference", "the task has no reference query")
    if gold.result.error is not None:
        return Verdict(None, "failed-gold", gold.result.error)
    return _compare(label, gold, episode.answer)


def label_rows(
    episodes: Iterable[Any],
    answerable: Mapping[str, bool | None],
    golds: Mapping[str, Gold],
    labels: Sequence[str] = SQL_LABELS,
) -> list[dict[str, Any]]:
    """Rows of the `labels` table; `answerable` and `golds` are keyed by task_id."""
    version = "" if set(labels) <= {SUCCESS} else _version()
    rows = []
    for episode in episodes:
        for label in labels:
            verdict = judge(
                label, episode, answerable.get(episode.task_id), golds.get(episode.task_id)
            )
            rows.append(
                {
                    "benchmark": episode.benchmark,
                    "agent": episode.agent,
                    "episode_id": episode.episode_id,
                    "label": label,
                    "correct": verdict.correct,
                    "source": verdict.source,
                    "version": "environment" if label == SUCCESS else version,
                    "error": verdict.error,
                }
            )
    return rows


@dataclass(frozen=True, slots=True)
class VerdictPair:
    """The strict and the semantic verdict on one episode; None where there is none."""

    strict: bool | None
    semantic: bool | None


def verdict_pairs(
    labels: pa.Table, strict: str = "strict-2022", semantic: str | None = None
) -> dict[str, VerdictPair]:
    """episode_id → both verdicts, for strict scoring beside the judge's.

    Args:
        labels: rows of the table `labels` of one agent on one benchmark.
        strict: name of the strict label.
        semantic: name of the judge's label; None: the only one that the table has.

    Raises UserError where a label is not in the table, or where `semantic` is left out and the
    table has several judges or none (typed equivalence is never taken for a semantic label).
    """
    found: dict[str, dict[str, bool | None]] = {}
    columns = (labels[name].to_pylist() for name in ("label", "episode_id", "correct"))
    for label, episode_id, correct in zip(*columns, strict=True):
        found.setdefault(label, {})[episode_id] = correct
    judges = sorted(name for name in found if name.startswith(PREFIX))
    if semantic is None:
        if len(judges) != 1:
            have = f"several judges: {', '.join(judges)}" if judges else "no judge's label"
            raise UserError(f"the labels hold {have}", "name one, or run sentinel judge CONFIG")
        semantic = judges[0]
    for name in (strict, semantic):
        if name not in found:
            raise UserError(f"no label {name!r}", f"there are: {', '.join(sorted(found))}")
    episodes = sorted(found[strict].keys() | found[semantic].keys())
    return {e: VerdictPair(found[strict].get(e), found[semantic].get(e)) for e in episodes}


def is_ordered(sql: str) -> bool:
    """Whether the outermost query has an ORDER BY; False where the parser cannot tell."""
    import sqlglot
    from sqlglot import exp

    from sentinel.sql.grounding import parse_query

    try:
        query = parse_query(sql)
        while isinstance(query, exp.Subquery) and not query.args.get("order"):
            query = query.this
    except (RecursionError, sqlglot.errors.SqlglotError):
        return False
    return query is not None and query.args.get("order") is not None


def _version() -> str:
    from sentinel.sql.compare import SCORER_VERSION

    return SCORER_VERSION


def _compare(label: str, gold: Gold, answer: str) -> Verdict:
    from sentinel.sql import compare
    from sentinel.sql.result import Result

    try:
        result = Result.from_json(answer)
    except ValueError as error:
        return Verdict(None, "unreadable-answer", f"stored answer: {error}")
    if result.error is not None:
        return Verdict(False, "failed-answer")
    if label == "strict-2022":
        same = compare.equal_strict_2022(gold.result, result)
    elif label == "strict-2024":
        same = compare.equal_strict_2024(gold.result, result)
    else:
        same = compare.equal_typed(gold.result, result, ordered=gold.ordered)
    return Verdict(bool(same), "match" if same else "mismatch")
