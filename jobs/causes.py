"""What went wrong in a run and was dealt with: causes of deaths and stops, from its metrics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

_EVENTS = ("death", "collected", "judged", "fit", "fit_failed")


def causes(metrics: Path, stage: str) -> list[str]:
    """One line per cause, with how often it was met, in order of first appearance.

    Deaths of workers (`event: death`), agents that stopped before their end or whose answers could
    not all be judged, and fits that failed or had nothing to fit on (the last word of each counts:
    one that went on since has not stopped). A torn line is passed over.
    """
    deaths: Counter[str] = Counter()
    stopped: dict[str, str | None] = {}
    fits: dict[tuple[str, str], str | None] = {}
    try:
        raw = metrics.read_bytes()
    except FileNotFoundError:
        return []
    for line in raw.split(b"\n"):
        try:
            row = json.loads(line)
            if row["stage"] != stage or row["event"] not in _EVENTS:
                continue
            where = f"{row['benchmark']}/{row['agent']}"
            if row["event"] == "death":
                deaths[f"{where}: {row['cause']}"] += 1
            elif row["event"] == "judged":
                n, cause = row["unjudged"], row["cause"]
                stopped[where] = f"{where}: {n} answers without a verdict: {cause}" if n else None
            elif row["event"] in ("fit", "fit_failed"):
                cause, nothing = row.get("cause"), row.get("not_fitted")
                why = f"stopped: {cause}" if cause else f"not fitted: {nothing}"
                fits[where, row["item"]] = why if cause or nothing else None
            else:
                cause = row.get("stopped")
                stopped[where] = f"{where} stopped: {cause}" if cause else None
        except (ValueError, KeyError, TypeError):
            continue
    return [
        *(f"{n} × {text}" if n > 1 else text for text, n in deaths.items()),
        *(text for text in stopped.values() if text),
        *_of_fits(fits),
    ]


def _of_fits(fits: Mapping[tuple[str, str], str | None]) -> Iterator[str]:
    """A line per agent and cause: one that met every fit is told once."""
    met: dict[tuple[str, str], list[str]] = {}
    for (where, item), why in fits.items():
        if why is not None:
            met.setdefault((where, why), []).append(item)
    for (where, why), items in met.items():
        yield f"{where} {items[0] if len(items) == 1 else f'{len(items)} fits'} {why}"
