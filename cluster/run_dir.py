"""The run directory: where every file of a run lies, and what "done" means.

`runs/NAME/` holds `config.json`, `env.json`, `parts/`, `tables/`, `progress/`, `logs/`,
`metrics.jsonl` and `report.html`. The unit of "done" is (stage, benchmark, agent, item): its
Parquet parts are written first, its marker last, with row counts, file hashes and the hash of its
inputs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster import files
from cluster.compacted import BROKEN, CompactedTable, check, stable_hash
from cluster.journal import Journal
from cluster.locks import FileLock
from sentinel.errors import UserError

log = logging.getLogger(__name__)
ELEMENT = "element-"
"""How the locks of elements begin."""


class RunDir:
    """One run's files. Holds only its path, so it travels to workers; making it creates nothing."""

    def __init__(self, root: Path | str, element: str | None = None) -> None:
        """`element`: what this process works on beside others that share the directory."""
        self.root = Path(root).absolute()
        self.element = element

    def __repr__(self) -> str:
        return f"RunDir({str(self.root)!r})"

    # Places

    @property
    def config_path(self) -> Path:
        """`config.json`, the resolved configuration."""
        return self.root / "config.json"

    @property
    def env_path(self) -> Path:
        """`env.json`, what the run ran on."""
        return self.root / "env.json"

    @property
    def metrics_path(self) -> Path:
        """`metrics.jsonl`, one line per measurement."""
        return self.root / "metrics.jsonl"

    @property
    def report_path(self) -> Path:
        """`report.html`."""
        return self.root / "report.html"

    @property
    def logs(self) -> Path:
        """Folder of log files."""
        return self.root / "logs"

    def progress_path(self, stage: str) -> Path:
        """Progress of a stage as JSON, for `sentinel status`; of an element, its own file."""
        name = stage if self.element is None else f"{stage}@{self.element}"
        return self.root / "progress" / f"{files.safe_name(name)}.json"

    def parts(self, stage: str, benchmark: str, agent: str | None) -> Path:
        """Folder of a stage's parts."""
        return self.root / "parts" / files.safe_name(stage) / _where(benchmark, agent)

    def part_path(
        self, stage: str, benchmark: str, agent: str | None, item: str, name: str
    ) -> Path:
        """Parquet part of one item."""
        part = f"{files.safe_name(item)}.{files.safe_name(name)}.parquet"
        return self.parts(stage, benchmark, agent) / part

    def marker_path(self, stage: str, benchmark: str, agent: str | None, item: str) -> Path:
        """The file whose existence says that an item is done."""
        return self.parts(stage, benchmark, agent) / f"{files.safe_name(item)}.done.json"

    def table_path(self, name: str, benchmark: str, agent: str | None) -> Path:
        """Compacted table of one agent (of one benchmark, where a table has no agent)."""
        folder = self.root / "tables" / files.safe_name(name) / _where(benchmark, agent)
        return folder / "part.parquet"

    def journals(self, stage: str, agent: str) -> Path:
        """Folder of the journals of an agent, one file per worker."""
        return self.root / "parts" / files.safe_name(stage) / f"agent={files.safe_name(agent)}"

    # Beginning

    def prepare(self, config: Mapping[str, Any]) -> None:
        """Make the folder and write `config.json`; finished parts guard themselves by hashes."""
        for folder in (self.root / "parts", self.root / "tables", self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        files.write_json(self.config_path, config)

    @contextmanager
    def lock(self, scope: str = "run", wait: float = 0.0) -> Iterator[None]:
        """Hold the run directory; a second driver gets a UserError, a dead one's lock is taken.

        `run` is the whole of it: refused also while an element (`lock_element`) is held. Waits up
        to `wait` seconds for a holder to leave.
        """
        with self._lock(scope, wait):
            if scope == "run":
                for path in sorted((self.root / "locks").glob(f"{ELEMENT}*.lock")):
                    with FileLock(path, what=str(self.root), wait=wait):
                        pass
            yield

    @contextmanager
    def lock_element(self, stage: str, agent: str, wait: float = 60.0) -> Iterator[None]:
        """Hold one agent's part of a stage, beside others that hold theirs."""
        with ExitStack() as held:
            # Under the whole lock, so that a driver of the whole run and an element cannot both
            # find the other absent.
            with self._lock("run", wait):
                held.enter_context(self._lock(f"{ELEMENT}{stage}@{agent}", 0.0))
            yield

    def _lock(self, scope: str, wait: float) -> FileLock:
        path = self.root / "locks" / f"{files.safe_name(scope)}.lock"
        return FileLock(path, what=str(self.root), wait=wait)

    # Parts

    def commit(
        self,
        stage: str,
        benchmark: str,
        agent: str | None,
        item: str,
        tables_: Mapping[str, pa.Table],
        input_hash: str,
    ) -> None:
        """Write the tables of one finished item, checked, then its marker.

        Raises TableError when a table does not have its declared columns.
        """
        checked = {name: check(name, table) for name, table in tables_.items()}
        written = {}
        for name, table in checked.items():
            path = self.part_path(stage, benchmark, agent, item, name)
            written[name] = {"rows": table.num_rows, "sha256": files.write_parquet(path, table)}
        marker = {"item": item, "input_hash": input_hash, "tables": written, "at": time.time()}
        files.write_json(self.marker_path(stage, benchmark, agent, item), marker)

    def is_done(
        self, stage: str, benchmark: str, agent: str | None, item: str, input_hash: str
    ) -> bool:
        """Whether an item is finished with these inputs and its files are whole.

        A cut or missing part is logged by name and the item counts as not done. A marker with other
        inputs raises UserError: finished work is neither reused nor overwritten in silence.
        """
        path = self.marker_path(stage, benchmark, agent, item)
        marker = files.read_json(path)
        if marker is None or "tables" not in marker:
            if path.exists():
                log.warning("marker %s cannot be read: its item is done again", path)
            return False
        if marker.get("input_hash") != input_hash:
            raise self.changed(stage, benchmark, agent, path.parent)
        for name, expected in marker["tables"].items():
            part = self.part_path(stage, benchmark, agent, item, name)
            if not part.exists() or files.file_hash(part) != expected["sha256"]:
                log.warning("part %s is missing or corrupt: its item is done again", part)
                self.metric(stage, event="corrupt_part", path=str(part))
                return False
        return True

    def changed(self, stage: str, benchmark: str, agent: str | None, path: Path) -> UserError:
        """The error for a configuration changed under finished work, with the ways out."""
        where = f"{benchmark}/{agent}" if agent is not None else benchmark
        return UserError(
            f"stage {stage} of {where} was finished with another configuration or other inputs "
            f"({self.root})",
            f"give the run a new name (name=NEW), or drop that work: rm -r '{path}'",
        )

    def items(self, stage: str, benchmark: str, agent: str | None) -> list[str]:
        """Names of the items that have a marker, sorted."""
        found = self.parts(stage, benchmark, agent).glob("*.done.json")
        markers = (files.read_json(path) for path in found)
        return sorted(m["item"] for m in markers if m is not None and "item" in m)

    def read_parts(
        self, stage: str, benchmark: str, agent: str | None, name: str
    ) -> Iterator[tuple[str, pa.Table]]:
        """(item, table) of every finished item that holds table `name`, in order of items."""
        for item in self.items(stage, benchmark, agent):
            marker = files.read_json(self.marker_path(stage, benchmark, agent, item)) or {}
            if name in marker.get("tables", {}):
                path = self.part_path(stage, benchmark, agent, item, name)
                yield item, _read(name, path, marker["tables"][name]["rows"], stage)

    # Tables

    def compact(
        self,
        stage: str,
        benchmark: str,
        agent: str | None,
        names: Sequence[str],
        *,
        in_order: bool = False,
    ) -> None:
        """Gather a stage's parts into `tables/<name>/…`, sorted by key. Repeating it costs nothing.

        Call it whenever a stage finds nothing missing: it also mends a corrupt table. With
        `in_order`, items follow one another in key order and one part is held at a time.
        """
        markers = {}
        for item in self.items(stage, benchmark, agent):
            marker = files.read_json(self.marker_path(stage, benchmark, agent, item)) or {}
            markers[item] = marker.get("tables", {})
        for name in names:
            source = files.digest({i: m[name]["sha256"] for i, m in markers.items() if name in m})
            table = self._table(name, benchmark, agent)
            if table.is_made_from(source):
                continue
            if not any(name in m for m in markers.values()):
                raise UserError(
                    f"stage {stage} of {benchmark}/{agent} has no part of table {name}",
                    f"run: sentinel {stage} --run-dir '{self.root}'",
                )
            parts = (t for _, t in self.read_parts(stage, benchmark, agent, name))
            if in_order:
                table.write_in_order(parts, stage=stage, source=source)
            else:
                table.write(pa.concat_tables(list(parts)), stage=stage, source=source)

    def has_table(self, name: str, benchmark: str, agent: str | None, source: str) -> bool:
        """Whether the compacted table exists, is whole and was made from `source`."""
        return self._table(name, benchmark, agent).is_made_from(source)

    def table_source(self, name: str, benchmark: str, agent: str | None) -> str | None:
        """What the compacted table was made from; None where there is none, or no marker."""
        return self._table(name, benchmark, agent).source

    def write_table(
        self,
        name: str,
        benchmark: str,
        agent: str | None,
        table: pa.Table,
        *,
        stage: str,
        source: str,
    ) -> None:
        """Replace a compacted table atomically: checked, sorted, keys unique, marker last."""
        self._table(name, benchmark, agent).write(table, stage=stage, source=source)

    def table_hash(
        self, name: str, benchmark: str, agent: str | None, without: Collection[str] = ()
    ) -> str:
        """Hash of a table's content, for the input hash of the stage that reads it.

        Taken over the Arrow data without volatile columns (timings never invalidate finished work)
        and without those that the reader does not use.
        """
        return stable_hash(name, self.read(name, benchmark, agent), without)

    def read(self, name: str, benchmark: str | None = None, agent: str | None = None) -> pa.Table:
        """A compacted table, of one benchmark or agent or of all, checked against its schema.

        Raises UserError when there is none, or when a file is corrupt (naming it).
        """
        found = [
            path
            for path in sorted((self.root / "tables" / files.safe_name(name)).rglob("part.parquet"))
            if _matches(path, benchmark, agent)
        ]
        if not found:
            where = "/".join(x for x in (benchmark, agent) if x is not None)
            raise UserError(
                f"no table {name} {'of ' + where + ' ' if where else ''}in {self.root}",
                f"run the stages before it: sentinel run --run-dir '{self.root}'",
            )
        return pa.concat_tables([CompactedTable(name, path).read(self.root) for path in found])

    def _table(self, name: str, benchmark: str, agent: str | None) -> CompactedTable:
        return CompactedTable(name, self.table_path(name, benchmark, agent))

    # Measurements and journals

    def metric(self, stage: str, **values: Any) -> None:
        """Append one line to `metrics.jsonl`: stage, time and the values (no NaN)."""
        line = files.canonical({"stage": stage, "at": round(time.time(), 3), **values})
        files.append_line(self.metrics_path, line)

    @contextmanager
    def timed(self, stage: str, **values: Any) -> Iterator[None]:
        """Record the wall seconds of a block as a metric, also when it fails."""
        start = time.perf_counter()
        outcome = "failed"
        try:
            yield
            outcome = "ok"
        finally:
            seconds = round(time.perf_counter() - start, 3)
            self.metric(stage, event="seconds", seconds=seconds, outcome=outcome, **values)

    def journal(self, stage: str, agent: str, worker: str, benchmark: str | None = None) -> Journal:
        """A new journal owned by one worker: `<worker>.jsonl` or `<benchmark>.<worker>.jsonl`."""
        before = "" if benchmark is None else f"{files.safe_name(benchmark)}."
        return Journal(self.journals(stage, agent) / f"{before}{files.safe_name(worker)}.jsonl")


def _where(benchmark: str, agent: str | None) -> Path:
    place = Path(f"benchmark={files.safe_name(benchmark)}")
    return place if agent is None else place / f"agent={files.safe_name(agent)}"


def _matches(path: Path, benchmark: str | None, agent: str | None) -> bool:
    folders = path.parent.parts
    if benchmark is not None and f"benchmark={files.safe_name(benchmark)}" not in folders:
        return False
    # A table without an agent level (tasks) belongs to every agent.
    has_agent = folders[-1].startswith("agent=")
    return agent is None or not has_agent or folders[-1] == f"agent={files.safe_name(agent)}"


def _read(name: str, path: Path, rows: int, stage: str) -> pa.Table:
    try:
        table = check(name, files.read_parquet(path))
    except BROKEN as error:
        raise UserError(
            f"part {path} is corrupt ({error})",
            f"run stage {stage} again: it does that item anew",
        ) from error
    if table.num_rows != rows:
        raise UserError(
            f"part {path} has {table.num_rows} rows, its marker says {rows}",
            f"run stage {stage} again: it does that item anew",
        )
    return table
