"""The section on who has looked at the held-out pools before, from the ledger beside the runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sentinel.report.blocks import (
    Cell,
    Data,
    Head,
    Row,
    Section,
    TableView,
    count,
    undefined,
    visible,
)
from sentinel.report.load import Monitor, Run
from sentinel.report.results import who

COLUMNS = ("benchmark", "agent", "manifest", "nth", "monitor", "looks", "first_at", "run", "reason")


def history(run: Run, folder: Path | None) -> list[dict[str, Any]]:
    """One row per held-out pool and monitor that has seen it, in order of their first look.

    From the ledger's files where they are there (they may have grown since), else from what each
    evaluation noted down.
    """
    entries = list(_entries(folder))
    rows = []
    for monitor in run.monitors:
        noted = monitor.evaluation.get("ledger") or {}
        known = {str(h) for h in noted.get("monitors", ())}
        mine = [
            e
            for e in entries
            if (e.get("benchmark"), e.get("agent")) == (monitor.benchmark, monitor.agent)
        ]
        # Other pools of the same agent (another seed, other questions) are other stories.
        pools = {str(e.get("manifest")) for e in mine if str(e.get("monitor")) in known}
        found = _looks(monitor, [e for e in mine if str(e.get("manifest")) in pools])
        rows += found or _noted(monitor, noted)
    return rows


def ledger(run: Run, folder: Path | None) -> Section:
    """How many monitors have seen each held-out pool, and why."""
    rows = history(run, folder)

    def when(row: Row) -> Cell | str:
        at = row["first_at"]
        if not isinstance(at, int | float):
            return undefined("not recorded")
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))

    def why(row: Row) -> Cell | str:
        return visible(row["reason"] or ("first look" if row["nth"] == 1 else "no reason recorded"))

    view = TableView(
        Data("ledger", COLUMNS, rows),
        "",
        (
            *who(),
            Head("Monitor no.", lambda r: count(r["nth"])),
            Head("Monitor", lambda r: visible(r["monitor"][:12]), number=False),
            Head("Evaluations", lambda r: count(r["looks"], "not recorded")),
            Head("First", when, number=False),
            Head("Why", why, number=False),
            Head("Run", lambda r: visible(r["run"] or ""), number=False),
        ),
        notes=(
            "The same monitor again is a replay with identical numbers. Every further monitor on "
            "one pool makes its held-out numbers a little more optimistic.",
        ),
    )
    most = max((row["nth"] for row in rows), default=0)
    said = {
        0: "No ledger was found: how often the held-out pools were read is unknown.",
        1: "Each held-out pool was seen by one monitor per agent.",
    }
    lead = f"Up to {most} monitors have seen one agent's held-out pool, for the reasons below."
    return Section("ledger", "Looks at the held-out pools", said.get(most, lead), (view,))


def _looks(monitor: Monitor, entries: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in entries:
        pool, seen_by = str(entry.get("manifest")), str(entry.get("monitor"))
        if (pool, seen_by) not in rows:
            rows[pool, seen_by] = {
                "benchmark": monitor.benchmark,
                "agent": monitor.agent,
                "manifest": pool,
                "nth": 1 + sum(known == pool for known, _ in rows),
                "monitor": seen_by,
                "looks": 0,
                "first_at": entry.get("at"),
                "run": entry.get("run"),
                "reason": entry.get("reason"),
            }
        rows[pool, seen_by]["looks"] += 1
    return list(rows.values())


def _noted(monitor: Monitor, noted: Mapping[str, Any]) -> list[dict[str, Any]]:
    reasons = [None, *noted.get("reasons", ())]
    return [
        {
            **dict.fromkeys(COLUMNS),
            "benchmark": monitor.benchmark,
            "agent": monitor.agent,
            "nth": nth + 1,
            "monitor": str(name),
            "reason": reasons[nth] if nth < len(reasons) else None,
        }
        for nth, name in enumerate(noted.get("monitors", ()))
    ]


def _entries(folder: Path | None) -> Iterator[Mapping[str, Any]]:
    for path in sorted(folder.glob("*.jsonl")) if folder is not None and folder.is_dir() else ():
        for line in path.read_bytes().split(b"\n"):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry
