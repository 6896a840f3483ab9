"""Flat rows of the ladder: one per benchmark, agent, system and λ, with its intervals and savings.

Every table on reliability and savings is a view of these rows; they go to disk as `ladder.csv`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sentinel.report.blocks import Cell, Row, percent, signed, span, undefined
from sentinel.report.load import Monitor, Run

SYSTEMS = {
    "vanilla": "vanilla agent",
    "gate": "+ exit gate",
    "full": "+ Chow delivery = full system",
    "early-exit": "+ early exit",
    "chow": "Chow alone",
    "exact-bar": "full, exact bar",
}
"""In the order of the paper's ladder; the last two stand beside it."""
INTERVALS = ("rs", "rs_minus_abstain", "rs_minus_vanilla", "coverage", "accuracy", "steps_saved")
PARTS = ("low", "high", "clusters", "dropped", "note")
COLUMNS = (
    *("benchmark", "agent", "system", "lam", "n", "rs", "always_abstain", "dagger"),
    *("rs_minus_abstain", "rs_minus_vanilla", "coverage", "accuracy"),
    *("delivered", "delivered_correct", "delivered_unanswerable"),
    *("exits_gate", "exits_stop", "exits_chow"),
    *("steps_saved", "steps_saved_n", "steps_total"),
    *("tokens_saved", "tokens_saved_n", "tokens_total"),
    *("seconds_saved_serial", "seconds_per_step", "seconds_saved_concurrent"),
    *("seconds_share_concurrent", "passes_answerability", "passes_correctness"),
    *(f"{name}_{part}" for name in INTERVALS for part in PARTS),
)


def rows(run: Run) -> list[dict[str, Any]]:
    """The ladder of every monitor of the run, in the order of agents, systems and λ."""
    found = [row for m in run.monitors for row in of_monitor(m)]
    order = list(SYSTEMS)
    where = {id(row): i for i, row in enumerate(found)}

    def key(row: Row) -> tuple[Any, ...]:
        first = next(i for i, r in enumerate(found) if name_of(r) == name_of(row))
        system = order.index(row["system"]) if row["system"] in order else len(order)
        return first, system, where[id(row)]

    return sorted(found, key=key)


def of_monitor(monitor: Monitor, ladder: Iterable[Mapping[str, Any]] | None = None) -> list[Any]:
    """Flat rows of one monitor; `ladder` replaces its own (another label, the same decisions)."""
    evaluation = monitor.evaluation
    flat = []
    for rung in evaluation.get("ladder", ()) if ladder is None else ladder:
        tokens, serial = rung.get("tokens") or {}, rung.get("seconds_serial") or {}
        side = rung.get("seconds_concurrent") or {}
        row = {
            "benchmark": monitor.benchmark,
            "agent": monitor.agent,
            **{k: rung.get(k) for k in COLUMNS if k in rung},
            "always_abstain": rung.get("always_abstain", evaluation.get("always_abstain")),
            **{f"exits_{name}": n for name, n in rung.get("exits", {}).items()},
            "steps_saved": rung["steps"]["share"],
            "steps_saved_n": rung["steps"]["saved"],
            "steps_total": rung["steps"]["total"],
            "tokens_saved": tokens.get("share"),
            "tokens_saved_n": tokens.get("saved"),
            "tokens_total": tokens.get("total"),
            "seconds_saved_serial": serial.get("saved"),
            "seconds_per_step": serial.get("seconds_per_step"),
            "seconds_saved_concurrent": side.get("saved"),
            "seconds_share_concurrent": side.get("share"),
            "passes_answerability": rung["monitor_passes"]["answerability"],
            "passes_correctness": rung["monitor_passes"]["correctness"],
        }
        for name in INTERVALS:
            interval = rung["intervals"].get(name, {})
            row.setdefault(name, interval.get("point"))
            row |= {f"{name}_{part}": interval.get(part) for part in PARTS}
        flat.append(row)
    return flat


def name_of(row: Row) -> tuple[str, str]:
    """What a row is about: benchmark and agent."""
    return row["benchmark"], row["agent"]


def stake(lam: object) -> str:
    """λ and its value, never broken over two lines."""
    return f"λ\u00a0=\u00a0{lam}"


def system_name(row: Row) -> str:
    """The system of a row in the paper's words."""
    name = str(row["system"])
    return SYSTEMS.get(name, name)


def lambdas(rows: Iterable[Row]) -> list[str]:
    """The stakes of the rows, ascending, as they are written."""
    return sorted({str(row["lam"]) for row in rows}, key=float)


def pivot(rows: Iterable[Row], by: str = "lam") -> list[dict[str, Any]]:
    """One row per benchmark, agent and system, with its rows of each λ under `at`."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        key = (*name_of(row), row["system"])
        line = found.setdefault(key, {**row, "at": {}})
        line["at"][str(row[by])] = row
    return list(found.values())


def interval_words(row: Row, name: str, digits: int = 3) -> str:
    """The interval in brackets, or why there is none and how many groups carry the statistic."""
    shown = span(row.get(f"{name}_low"), row.get(f"{name}_high"), digits)
    if shown:
        return shown
    note, groups = row.get(f"{name}_note"), row.get(f"{name}_clusters")
    return f"{note} ({groups})" if note and note != "undefined" else ""


def score(row: Row | None, name: str, *, mark: bool = False, digits: int = 2) -> Cell | str:
    """A score with its interval in small print; † where `mark` and the difference is clear."""
    if row is None:
        return undefined("this system was not played at this λ")
    value = signed(row.get(name), "no held-out episode with an outcome", digits)
    if isinstance(value, Cell):
        return value
    dagger = mark and bool(row.get("dagger"))
    above = dagger and (row.get("rs_minus_abstain") or row.get("full_minus_abstain") or 0) > 0
    text = f"{value}{' †' if dagger else ''}"
    return Cell(text, sub=interval_words(row, name, digits), strong=above)


def share(row: Row | None, name: str, reason: str) -> Cell | str:
    """A share in per cent with its interval in small print."""
    if row is None:
        return undefined("this system was not played at this λ")
    value = percent(row.get(name), reason)
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    if isinstance(value, Cell) or low is None or high is None:
        return value
    return Cell(value, sub=f"[{100 * low:.1f}, {100 * high:.1f}]")


def agent_name(run: Run, row: Row) -> str:
    """A short name: the agent, with its benchmark where the run has several."""
    several = len({m.benchmark for m in run.monitors}) > 1
    return f"{row['benchmark']} · {row['agent']}" if several else str(row["agent"])
