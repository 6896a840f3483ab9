"""What a frozen monitor did to a collection, in numbers, from its tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cluster.run_dir import RunDir
from sentinel.tables import MONITORED


def summary(run_dir: RunDir, benchmark: str, agent: str) -> dict[str, Any] | None:
    """Episodes that were refused, stopped and withheld of all, their turns and generated tokens.

    None where no monitor watched.
    """
    place = benchmark, agent
    if not all(run_dir.table_path(n, *place).exists() for n in ("exits", "episodes")):
        return None
    columns = ["episode_id", "end", "turns", "generated_tokens"]
    episodes = run_dir.read("episodes", *place).select(columns).to_pylist()
    exits = {r["episode_id"]: r for r in run_dir.read("exits", *place).to_pylist()}
    ends = Counter(e["end"] for e in episodes)
    withheld = sum(
        e["end"] == "answered" and exits[e["episode_id"]]["delivered"] is False for e in episodes
    )
    return {
        "benchmark": benchmark,
        "agent": agent,
        "episodes": len(episodes),
        **{end: ends[end] for end in MONITORED},
        "withheld": withheld,
        "by": dict(Counter(r["exit_by"] for r in exits.values() if r["exit_by"])),
        "turns": sum(e["turns"] for e in episodes),
        "generated_tokens": sum(e["generated_tokens"] for e in episodes),
    }


def told(found: dict[str, Any]) -> str:
    """A summary as one line."""
    return (
        f"{found['benchmark']}/{found['agent']}: a monitor refused {found['refused']}, stopped "
        f"{found['stopped']} and withheld {found['withheld']} of {found['episodes']} episodes "
        f"({found['turns']} turns, {found['generated_tokens']:,} generated tokens)"
    )
