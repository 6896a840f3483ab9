"""Writes the trace that the scheduling bench plays: what every turn of recorded episodes took.

    python tests/bench/record_trace.py RUN_DIR tests/bench/data/turns.parquet

One row per turn, in order, all columns int32: `agent`, `task` and `group` (numbers), `turn`,
`new_tokens` of the prompt (what no earlier turn of the episode has read), `generated_tokens`,
`engine_us` and `env_us` (microseconds of the engine, which it shared, and of the environment).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

NAMES = ("agent", "task", "group", "turn", "new_tokens", "generated_tokens", "engine_us", "env_us")
READ = ["episode_id", "turn", "prompt_tokens", "generated_tokens", "engine_seconds", "env_seconds"]


def main(run_dir: Path, out: Path) -> None:
    """Read the `episodes` and `turns` tables of a run, agent after agent."""
    tasks: dict[str, int] = {}
    groups: dict[str, int] = {}
    rows = []
    for agent, path in enumerate(sorted((run_dir / "tables" / "turns").rglob("part.parquet"))):
        where = {}
        episodes = Path(str(path).replace("/tables/turns/", "/tables/episodes/"))
        for row in read(episodes, ["episode_id", "task_id", "group"]).to_pylist():
            task = tasks.setdefault(row["task_id"], len(tasks))
            where[row["episode_id"]] = task, groups.setdefault(row["group"], len(groups))
        order = [("episode_id", "ascending"), ("turn", "ascending")]
        seen = 0
        for row in read(path, READ).sort_by(order).to_pylist():
            if row["turn"] == 1:
                seen = 0
            new = max(row["prompt_tokens"] - seen, 0)
            seen = row["prompt_tokens"] + row["generated_tokens"]
            took = (round(1e6 * row[name]) for name in ("engine_seconds", "env_seconds"))
            rows.append((agent, *where[row["episode_id"]], row["turn"], new,
                         row["generated_tokens"], *took))  # fmt: skip
    table = pa.table([pa.array(c, pa.int32()) for c in zip(*rows, strict=True)], names=NAMES)
    out.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, out, compression="zstd")
    print(f"{len(rows)} turns, {out.stat().st_size} bytes")


def read(path: Path, names: list[str]) -> pa.Table:
    """Some columns of one Parquet file."""
    with path.open("rb") as file:
        return pq.ParquetFile(file).read(names)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
