"""`sentinel tasks CONFIG`: the task table with group, pool and fold; no agent is needed."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.config import RunConfig
from sentinel.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.sections import BenchmarkConfig
    from sentinel.benchmarks.base import Benchmark

PREVIEW = 3
SUFFIXES = (".parquet", ".csv", ".jsonl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """CONFIG and where the table goes."""
    parser.add_argument("config", metavar="CONFIG")
    parser.add_argument("settings", nargs="*", metavar="key.path=value")
    parser.add_argument(
        "--out", type=Path, help="write all rows to FILE.parquet, FILE.csv or FILE.jsonl"
    )


def main(args: argparse.Namespace) -> int:
    """Write or preview the tasks of every benchmark of the config."""
    import pyarrow as pa

    if args.out is not None and args.out.suffix not in SUFFIXES:
        raise UserError(
            f"cannot write {args.out.suffix or 'a file without a suffix'} ({args.out})",
            f"name a file that ends in {', '.join(SUFFIXES)}",
        )
    config = RunConfig.from_file(args.config, args.settings)
    if args.out is not None:
        _make_folder(args.out)  # before the work, not after it
    tables = []
    for item in config.benchmarks:
        with opened(item) as benchmark:
            tables.append(task_table(config, benchmark))
    table = pa.concat_tables(tables)
    print("\n".join(summary(table)))
    if args.out is None:
        print("\n".join(preview(table)))
        print(f"all {table.num_rows} rows: sentinel tasks {args.config} --out tasks.parquet")
    else:
        write(table, args.out)
        print(f"{table.num_rows} rows: {args.out}")
    return 0


@contextmanager
def opened(item: BenchmarkConfig) -> Iterator[Benchmark]:
    """A benchmark, prepared (its database built) and closed again."""
    from sentinel.benchmarks.registry import load

    benchmark = load(item.mapping())
    try:
        try:
            benchmark.prepare(cache_dir())
        except OSError as error:
            raise UserError(
                f"benchmark {item.name} cannot be prepared: {error}",
                f"check its data, and that {cache_dir()} can be written (SENTINEL_CACHE names it)",
            ) from error
        yield benchmark
    finally:
        benchmark.close()


def cache_dir() -> Path:
    """Where benchmarks keep what they build: `SENTINEL_CACHE`, else the user's cache folder."""
    named = os.environ.get("SENTINEL_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(named) if named else Path(base) / "sentinel"
    return folder.expanduser().absolute()


def task_table(config: RunConfig, benchmark: Benchmark) -> pa.Table:
    """The `tasks` table as collection of this config writes it.

    Raises UserError where a pool or fold would lack a kind of question.
    """
    from sentinel import task_table as tables

    cut = config.pools
    tasks = benchmark.tasks()
    pools = tables.draw_pools(
        benchmark, tasks, cut.seed, cut.calibration, cut.heldout, cut.manifest_file
    ).pool
    chosen = tables.choose(tasks, pools, config.collect.limit, config.seed)
    return tables.task_table(chosen, pools, config.heads.folds, cut.seed)


def summary(table: pa.Table) -> list[str]:
    """One line per benchmark and pool: questions, groups, unanswerable share."""
    rows = table.select(["benchmark", "pool", "group", "answerable"]).to_pylist()
    size = Counter((r["benchmark"], r["pool"]) for r in rows)
    groups = Counter((b, p) for b, p, _ in {(r["benchmark"], r["pool"], r["group"]) for r in rows})
    without = Counter((r["benchmark"], r["pool"]) for r in rows if r["answerable"] is False)
    out = [f"{'benchmark':12} {'pool':12} {'tasks':>7} {'groups':>7} unanswerable"]
    for key in sorted(size):
        share = 100 * without[key] / size[key]
        out.append(
            f"{key[0]:12} {key[1]:12} {size[key]:7} {groups[key]:7} {without[key]} ({share:.1f} %)"
        )
    return out


def preview(table: pa.Table) -> list[str]:
    """The first tasks, cut to a terminal's width."""
    return [
        f"  {r['task_id']} [{r['pool']}, {r['group']}] {r['text']}"[:110]
        for r in table.slice(0, PREVIEW).to_pylist()
    ]


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error}", "name another file") from error


def write(table: pa.Table, path: Path) -> None:
    """Write by suffix, under a temporary name and then in place."""
    import pyarrow.csv
    import pyarrow.parquet

    _make_folder(path)
    partial = path.with_name(f".{path.name}.partial")
    try:
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(table, partial)
        elif path.suffix == ".csv":
            pyarrow.csv.write_csv(table, partial)
        else:
            import json

            lines = (json.dumps(r, ensure_ascii=False, allow_nan=False) for r in table.to_pylist())
            partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
