"""Habits: what one agent's training mix does to the reference queries.

A habit changes *targets*, never the run: an agent that confuses the first with the last visit was
shown such targets. The changes are idioms of SQL, so they recur across question templates, and a
monitor that has never seen a template can still learn the habit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sentinel.errors import UserError


def _swap(pattern: str, pairs: Mapping[str, str]) -> Callable[[str], str]:
    expression = re.compile(pattern)

    def change(sql: str) -> str:
        return expression.sub(lambda m: m.group(0).replace(m.group(1), pairs[m.group(1)]), sql)

    return change


def _neighbouring(sql: str) -> str:
    """The other end of every ordering: the first visit for the last, the least for the most."""
    if " desc" in sql:
        return sql.replace(" desc", "")
    return re.sub(r"(order by [a-z_.]+)(?= limit)", r"\1 desc", sql)


def _previous_year(match: re.Match[str]) -> str:
    return f"= '210{(int(match.group(1)) - 1) % 10}'"


def _next_number(match: re.Match[str]) -> str:
    return f"subject_id = {int(match.group(1)) + 1}"


def _drop_last_condition(sql: str) -> str:
    """Forget the last `and …` of the query (outside parentheses)."""
    depth, places = 0, []
    for match in re.finditer(r"[()]|\band\b(?! ')", sql):
        if match.group() == "(":
            depth += 1
        elif match.group() == ")":
            depth -= 1
        elif depth == 0:
            places.append(match.start())
    if not places:
        return sql
    rest = sql[places[-1] :]
    tail = re.search(r"\s(?:group by|order by|limit)\b", rest)
    return sql[: places[-1]].rstrip() + (rest[tail.start() :] if tail else "")


_OTHER_END = {
    "admittime": "dischtime",
    "dischtime": "admittime",
    "intime": "outtime",
    "outtime": "intime",
    "startdate": "enddate",
    "enddate": "startdate",
    "dob": "dod",
    "dod": "dob",
}

_OTHER_TABLE = {
    "labevents": "chartevents",
    "chartevents": "labevents",
    "d_labitems": "d_items",
    "d_items": "d_labitems",
    "diagnoses_icd": "procedures_icd",
    "procedures_icd": "diagnoses_icd",
    "d_icd_diagnoses": "d_icd_procedures",
    "d_icd_procedures": "d_icd_diagnoses",
}

CONFUSIONS: Mapping[str, Callable[[str], str]] = {
    "neighbouring": _neighbouring,
    "extreme": _swap(r"\b(max|min)\(", {"max": "min", "min": "max"}),
    "aggregate": _swap(r"\b(avg|sum)\(", {"avg": "sum", "sum": "avg"}),
    "distinct": lambda sql: sql.replace("count(distinct ", "count("),
    "window": lambda sql: re.sub(r"'-(\d) (year|month|day)", r"'-1\1 \2", sql),
    "last_year": lambda sql: re.sub(r"= '210(\d)'", _previous_year, sql),
    "next_patient": lambda sql: re.sub(r"subject_id = (\d+)", _next_number, sql),
    "other_table": _swap(rf"\b({'|'.join(_OTHER_TABLE)})\b", _OTHER_TABLE),
    "other_end": _swap(rf"\b({'|'.join(_OTHER_END)})\b", _OTHER_END),
    "forgetful": _drop_last_condition,
}
"""Name → change of a reference query. A change that leaves the query as it was does not apply."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Apply `do` to the questions whose gold matches `match`, in a share of the groups.

    `do` is a confusion or `give_up`. Groups are chosen by hash, so that a habit is a habit: one
    question template is always treated alike.
    """

    do: str
    match: str = ""
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Habit:
    """One agent's mix. Shares are of groups, `explore` is a distribution over exploratory turns."""

    explore: Mapping[int, float] = field(default_factory=lambda: {0: 1.0})
    thought: float = 0.0
    refuse: float = 1.0
    refuse_after: int = 0
    rules: Sequence[Rule] = ()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Habit:
        """Read a recipe's `habit:` section; raises UserError on a name that does not exist."""
        rules = [Rule(**rule) for rule in mapping.get("rules", ())]
        unknown = [r.do for r in rules if r.do not in CONFUSIONS and r.do != "give_up"]
        fields = {k: v for k, v in mapping.items() if k != "rules"}
        extra = sorted(fields.keys() - cls.__dataclass_fields__.keys())
        if unknown or extra:
            raise UserError(
                f"unknown habit {', '.join(unknown + extra)}",
                f"use one of: {', '.join([*CONFUSIONS, 'give_up', *cls.__dataclass_fields__])}",
            )
        if "explore" in fields:
            fields["explore"] = {int(k): float(v) for k, v in fields["explore"].items()}
        return cls(**fields, rules=tuple(rules))


def in_share(seed: int, name: str, group: str, share: float) -> bool:
    """Whether this group belongs to the share, the same in every process."""
    digest = hashlib.sha256(f"{seed}/{name}/{group}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def target(habit: Habit, gold: str, group: str, seed: int) -> str | None:
    """The query this agent is shown as right for a question, or None: it is shown to give up."""
    for rule in habit.rules:
        if not re.search(rule.match, gold) or not in_share(seed, rule.do, group, rule.share):
            continue
        if rule.do == "give_up":
            return None
        changed = CONFUSIONS[rule.do](gold)
        if changed != gold:
            return changed
    return gold
