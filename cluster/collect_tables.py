"""From journals to the tables `episodes` and `turns`, and what a collection was made from."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster import files
from cluster.journal import Account, Reader
from cluster.replica import STAGE
from cluster.run_dir import RunDir
from sentinel import episodes, tables
from sentinel.errors import UserError

log = logging.getLogger(__name__)
CHUNK = 256
"""Episodes held as Python objects at once."""


def journal_paths(run_dir: RunDir, benchmark: str, agent: str) -> list[Path]:
    """Journals of one agent on one benchmark, in the order in which they were begun."""
    return _journals(run_dir.journals(STAGE, agent), files.safe_name(benchmark))


def _journals(folder: Path, name: str) -> list[Path]:
    return sorted(p for p in folder.glob("*.jsonl") if p.stem.rpartition(".")[0] == name)


def claim(run_dir: RunDir, benchmark: str, agent: str, inputs: Mapping[str, Any]) -> str:
    """Bind the journals of an agent to their inputs; returns the hash of the inputs.

    Raises UserError naming what changed when there are journals from other inputs.
    """
    path = run_dir.journals(STAGE, agent) / f"{files.safe_name(benchmark)}.inputs.json"
    found = files.read_json(path)
    parts = {name: files.digest(value) for name, value in inputs.items()}
    paths = journal_paths(run_dir, benchmark, agent)
    if paths and found is not None and found != parts:
        names = sorted(k for k in {*found, *parts} if found.get(k) != parts.get(k))
        error = run_dir.changed(STAGE, benchmark, agent, path.parent)
        raise UserError(f"{error.cause}: {', '.join(names)} changed", error.remedy)
    if found != parts:
        files.write_json(path, parts)
    return files.digest(parts)


def collected_on(run_dir: RunDir, benchmark: str, agent: str) -> str | None:
    """Names the data, rules, clock and prompt of an agent's episodes; None where none are known."""
    path = run_dir.journals(STAGE, agent) / f"{files.safe_name(benchmark)}.inputs.json"
    return (files.read_json(path) or {}).get("benchmark")


def of_another_benchmark(run_dir: RunDir, benchmark: str, fingerprint: str) -> list[UserError]:
    """One error per agent whose journals were collected on other questions of that name."""
    known, name, errors = files.digest(fingerprint), files.safe_name(benchmark), []
    for folder in sorted(run_dir.journals(STAGE, "").parent.glob("agent=*")):
        found = files.read_json(folder / f"{name}.inputs.json")
        if found is None or found.get("benchmark") == known or not _journals(folder, name):
            continue
        agent = files.name_of(folder.name.removeprefix("agent="))
        error = run_dir.changed(STAGE, benchmark, agent, folder)
        errors.append(UserError(f"{error.cause}: benchmark changed", error.remedy))
    return errors


def finished(run_dir: RunDir, benchmark: str, agent: str) -> set[str]:
    """Ids of the episodes that need not run again.

    Where every one of them ended in an engine error (a wrong key, a server that was down), the
    journals are set aside as `*.failed`, so that a mended run tries again.
    """
    paths = journal_paths(run_dir, benchmark, agent)
    reader = episode_reader()
    ends = {e.episode_id: e.end for e in reader.read(paths)}
    tell(run_dir, benchmark, agent, reader.account)
    if ends and set(ends.values()) == {"engine_error"}:
        for path in paths:
            path.rename(path.with_name(f"{path.name}.failed"))
        return set()
    return set(ends)


def compact(
    run_dir: RunDir,
    benchmark: str,
    agent: str,
    expected: Iterable[str],
    input_hash: str,
    watched: bool = False,
) -> None:
    """Write `episodes` and `turns` of the expected episodes, unless they are there.

    `watched`: and `exits`, of all that ran under a monitor.

    Raises UserError when one of them is in no journal.
    """
    wanted = set(expected)
    source = table_source(wanted, input_hash)
    if is_compacted(run_dir, benchmark, agent, wanted, input_hash, watched):
        return
    reader = episode_reader()
    paths = journal_paths(run_dir, benchmark, agent)
    found = (e for e in reader.read(paths) if e.episode_id in wanted)
    rows: list[pa.Table] = [tables.EPISODES.empty()]
    turns: list[pa.Table] = [tables.TURNS.empty()]
    exits: list[pa.Table] = [tables.EXITS.empty()]
    while chunk := list(islice(found, CHUNK)):
        pairs = [episodes.to_rows(e) for e in chunk]
        rows.append(tables.EPISODES.from_rows([row for row, _ in pairs]))
        turns.append(tables.TURNS.from_rows([t for _, some in pairs for t in some]))
        decided = [row for e in chunk if (row := episodes.exit_row(e)) is not None]
        exits.append(tables.EXITS.from_rows(decided))
    tell(run_dir, benchmark, agent, reader.account)
    missing = wanted - reader.seen
    if missing:
        raise UserError(
            f"{len(missing)} episodes of {benchmark}/{agent} are in no journal "
            f"(the first: {min(missing)})",
            f"run again: sentinel {STAGE} --run-dir '{run_dir.root}'",
        )
    # Turns first: an `episodes` table says that the agent is complete.
    made = {"exits": exits, "turns": turns, "episodes": rows}
    for name, parts in ((name, made[name]) for name in _names(watched)):
        table = pa.concat_tables(parts)
        run_dir.write_table(name, benchmark, agent, table, stage=STAGE, source=source)


def is_compacted(
    run_dir: RunDir,
    benchmark: str,
    agent: str,
    expected: Iterable[str],
    input_hash: str,
    watched: bool = False,
) -> bool:
    """Whether the tables hold exactly the expected episodes of these inputs."""
    source = table_source(expected, input_hash)
    return all(run_dir.has_table(name, benchmark, agent, source) for name in _names(watched))


def _names(watched: bool) -> tuple[str, ...]:
    return ("exits", "turns", "episodes") if watched else ("turns", "episodes")


def table_source(expected: Iterable[str], input_hash: str) -> str:
    """What the tables were made from: the inputs and the ids."""
    return files.digest([input_hash, sorted(expected)])


def episode_reader() -> Reader[episodes.Episode]:
    """Reads journals as episodes."""
    return Reader(episodes.from_json_line, lambda episode: episode.episode_id)


def tell(run_dir: RunDir, benchmark: str, agent: str, account: Account) -> None:
    """Report what was ignored: a bad line costs its episode, which runs again."""
    if not (account.bad or account.torn or account.duplicates):
        return
    for line in account.bad_lines:
        log.warning("bad journal line ignored, its episode runs again: %s", line)
    run_dir.metric(
        STAGE,
        event="journal",
        benchmark=benchmark,
        agent=agent,
        bad=account.bad,
        torn=account.torn,
        duplicates=account.duplicates,
    )
