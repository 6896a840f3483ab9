"""`sentinel doctor CONFIG`: what a run needs, checked before it starts; one line per check.

CONFIG is a run's, or that of a benchmark or an agent alone (`configs/benchmarks/craft.yaml`,
`configs/agents/gpt-4o.yaml`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from jobs.config import RunConfig
from jobs.doctor_agents import agent_findings
from jobs.sections import AgentConfig
from sentinel.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

PACKAGES = ("torch", "transformers", "ray", "scikit-learn", "numpy", "pyarrow", "pydantic")
SHM_MB = 300


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: `ok`, `note` (worth knowing, nothing to mend) or `FAIL`."""

    state: str
    what: str
    detail: str

    def __str__(self) -> str:
        return f"{self.state:4}  {self.what:22} {self.detail}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """CONFIG, and which of the slower checks to leave out."""
    parser.add_argument("config", metavar="CONFIG")
    parser.add_argument("settings", nargs="*", metavar="key.path=value")
    parser.add_argument("--no-ray", action="store_true", help="do not start a Ray")
    parser.add_argument("--limit", type=int, help="run at most so many gold queries")


def main(args: argparse.Namespace) -> int:
    """Print every check; 2 when one of them failed."""
    config, alone = read(args.config, args.settings)
    failed = 0
    ray = not args.no_ray and alone is None
    for check in checks(config, ray=ray, limit=args.limit, alone=alone):
        print(check, flush=True)
        failed += check.state == "FAIL"
    ready = "ready" if alone else f"ready: sentinel run {args.config}"
    print(f"{failed} to mend" if failed else ready)
    return 2 if failed else 0


def read(path: str, settings: list[str]) -> tuple[RunConfig, str | None]:
    """The run config of a file, and whether the file is a `benchmark`'s or an `agent`'s alone.

    A benchmark's file says `kind`, an agent's `engine`, and neither names benchmarks.
    """
    from jobs import config_files as files

    file = Path(path).expanduser().absolute()
    mapping = files.read_mapping(file)
    if "benchmarks" in mapping or not {"kind", "engine"} & mapping.keys():
        return RunConfig.from_file(path, settings), None
    alone = "agent" if "engine" in mapping else "benchmark"
    item = files.resolve(f"{alone}s", str(file), file.parent)
    # Settings of the file itself go without a prefix; what names a section of a run is the run's.
    pairs = files.parse_overrides(settings)
    own = [len(parts) == 1 or parts[0] not in RunConfig.model_fields for parts, _ in pairs]
    for (parts, value), mine in zip(pairs, own, strict=True):
        if mine:
            files.apply(item, parts, value)
    world: Any = {"name": "clinic"} if alone == "agent" else item
    agent: Any = {"name": "nobody", "engine": "custom", "model": "none"}
    agent = item if alone == "agent" else agent
    raw = {"name": file.stem, "benchmarks": [world], "agents": [agent]}
    rest = [text for text, mine in zip(settings, own, strict=True) if not mine]
    return RunConfig.from_mapping(raw, overrides=rest, where=path), alone


def checks(
    config: RunConfig, *, ray: bool, limit: int | None, alone: str | None = None
) -> Iterator[Check]:
    """Every check of a config, cheap ones first; `alone`: of its `agent` or `benchmark` only."""
    yield from import_location()
    yield _versions()
    yield from _machine()
    for agent in () if alone == "benchmark" else config.agents:
        found = _guarded(f"agent {agent.name}", lambda a=agent: engine(a))  # type: ignore[misc]
        yield found
        if found.state != "FAIL":
            for state, what, detail in agent_findings(agent):
                yield Check(state, f"{agent.name}: {what}", detail)
    if config.judge is not None and alone is None:
        yield _guarded("judge", lambda: _judge(config))
    if alone != "agent":
        yield from benchmarks(config, limit)
    if ray:
        yield _guarded("ray", lambda: _ray(config))


def import_location() -> Iterator[Check]:
    """`sentinel`, `cluster` and `jobs` must come from one place: the installed distribution."""
    where = {
        name: Path(str(import_module(name).__file__)).resolve().parent.parent
        for name in ("sentinel", "cluster", "jobs")
    }
    expected = _distribution_root()
    if expected is None:
        expected = where["jobs"]
        yield Check("note", "installation", f"not installed; running from {expected}")
    strangers = {n: p for n, p in where.items() if p != expected}
    if strangers:
        found = ", ".join(f"{name} from {path}" for name, path in strangers.items())
        yield Check(
            "FAIL",
            "imports",
            f"{found}, but sentinel-suite is installed in {expected}; "
            f"leave that folder (and clear PYTHONPATH), or reinstall: pip install -e .",
        )
    else:
        yield Check("ok", "imports", f"sentinel, cluster and jobs from {expected}")


def _distribution_root() -> Path | None:
    """The folder that holds the three packages, by the records of the installation."""
    try:
        distribution = metadata.distribution("sentinel-suite")
    except metadata.PackageNotFoundError:
        return None
    record = json.loads(distribution.read_text("direct_url.json") or "{}")
    if record.get("dir_info", {}).get("editable"):
        return Path(unquote(urlsplit(record["url"]).path)).resolve()
    return Path(str(distribution.locate_file(""))).resolve()


def _versions() -> Check:
    found, missing = [f"Python {sys.version.split()[0]}"], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("FAIL", "packages", f"missing: {', '.join(missing)}; run: pip install -e .")
    return Check("ok", "packages", ", ".join(found))


def _machine() -> Iterator[Check]:
    from cluster.ray_runtime import available_cpus
    from jobs.machine import slurm_commands, visible_gpus

    free = shutil.disk_usage(Path.cwd()).free // 2**20
    yield Check(
        "ok" if free > 1000 else "FAIL", "machine", f"{available_cpus()} CPUs, {free} MB free"
    )
    shm = Path("/dev/shm")
    if shm.is_dir() and shutil.disk_usage(shm).free < SHM_MB * 2**20:
        yield Check("note", "/dev/shm", f"under {SHM_MB} MB free: Ray will use slower files")
    gpus = visible_gpus()
    yield Check("ok" if gpus else "note", "gpus", f"{gpus} visible" if gpus else "none visible")
    slurm = slurm_commands()
    present = f"present ({', '.join(slurm)})" if slurm else "not present: runs stay on this machine"
    yield Check("ok" if slurm else "note", "slurm", present)


def engine(agent: AgentConfig) -> Check:
    """Weights, tokenizer and library of one agent. Raises UserError for what is missing."""
    from cluster.engines import KINDS, check_agent, weights_folder
    from sentinel.nano import tokenizer_dir, world_of

    what = f"agent {agent.name}"
    if agent.engine == "openai":
        from cluster.engines.openai import account

        who = account(agent.model_dump(exclude_none=True))
        return Check("ok", what, f"openai, {agent.model} at {who.url}")
    if agent.engine == "policy":
        check_agent(agent.model_dump(exclude_none=True))
        return Check("ok", what, f"policy {agent.model}, no model")
    if agent.engine != "custom" and agent.engine not in KINDS:
        raise UserError(
            f"engine {agent.engine} is not available in this version",
            f"use one of: {', '.join(sorted(KINDS))}",
        )
    if agent.engine == "vllm" and find_spec("vllm") is None:
        raise UserError("vllm is not installed", "pip install 'sentinel-suite[gpu]'")
    if Path(agent.model).is_absolute():
        check_model_folder(Path(agent.model))
    folder = weights_folder(agent.model)
    if folder is None:
        return _hub_model(what, agent)
    if agent.model.startswith("nano:"):
        tokenizer_dir(world_of(agent.model.removeprefix("nano:")))
    return Check("ok", what, f"{agent.engine}, {_size(folder)} in {folder}")


def check_model_folder(folder: Path) -> None:
    """A model folder in Hugging Face form: config, weights, tokenizer. Raises UserError."""
    lacks = [] if (folder / "config.json").is_file() else ["config.json"]
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        lacks.append("weights (*.safetensors)")
    if not any((folder / n).is_file() for n in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        lacks.append("tokenizer.json")
    if lacks:
        raise UserError(
            f"{folder} lacks {', '.join(lacks)}", "name a complete model folder in the agent config"
        )


def _hub_model(what: str, agent: AgentConfig) -> Check:
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(agent.model, "config.json", revision=agent.revision)
    if isinstance(cached, str):
        return Check("ok", what, f"{agent.engine}, {agent.model} in the local cache")
    return Check("note", what, f"{agent.engine}, {agent.model} will be downloaded at the first use")


def _size(folder: Path) -> str:
    files = [p for p in folder.iterdir() if p.is_file()]
    return f"{sum(p.stat().st_size for p in files) / 2**20:.1f} MB"


def benchmarks(config: RunConfig, limit: int | None) -> Iterator[Check]:
    """Tasks, pools, gold queries and environments of every benchmark."""
    from jobs.doctor_env import checks as environment_checks
    from jobs.gold import counts, run_gold, verdict
    from jobs.tasks import opened, task_table

    for item in config.benchmarks:
        what = f"benchmark {item.name}"
        try:
            with opened(item) as benchmark:
                table = task_table(config, benchmark)
                groups = len(set(table["group"].to_pylist()))
                yield Check("ok", what, f"{table.num_rows} tasks in {groups} groups")
                yield _pools(item.name, table, getattr(benchmark, "published_pools", None))
                outcomes = run_gold(benchmark, limit)
                total = counts(outcomes)
                state, detail = verdict(outcomes, getattr(benchmark, "not_reproduced", frozenset()))
                if total.run or benchmark.dialect.is_sql:
                    yield Check(state, f"{item.name}: gold", f"{total}{detail}")
                if not benchmark.dialect.is_sql:
                    for state, what, detail in environment_checks(benchmark):
                        yield Check(state, f"{item.name}: {what}", detail)
        except UserError as error:
            yield Check("FAIL", what, str(error))


def _pools(name: str, table: pa.Table, published: Mapping[str, int] | None) -> Check:
    """Sizes of the pools, compared with those that were published for the same data."""
    counted = Counter(table["pool"].to_pylist())
    sizes = {pool: counted[pool] for pool in sorted(counted)}
    text = ", ".join(f"{pool} {n}" for pool, n in sizes.items())
    if published is None or table.num_rows != sum(published.values()):  # a limit, or other files
        return Check("ok", f"{name}: pools", text)
    if sizes == dict(published):
        return Check("ok", f"{name}: pools", f"{text}, as published")
    wanted = ", ".join(f"{pool} {published[pool]}" for pool in sorted(published))
    return Check("note", f"{name}: pools", f"{text}, but published are {wanted}")


def _ray(config: RunConfig) -> Check:
    from cluster import files
    from cluster.pool import open_cluster

    site = config.site
    with open_cluster(
        "local", site.cpus, 0, site.address, object_store_mb=site.object_store_mb
    ) as cluster:
        results = list(cluster.map("doctor", files.digest, [1, 2]))
        bad = [str(r) for _, r in results if not isinstance(r, str)]
        if bad:
            raise UserError(f"a Ray task failed: {bad[0]}", "see the traceback with --on debug")
        place = f"joined {site.address}" if site.address else "starts and runs tasks"
        return Check("ok", "ray", f"{place}, {cluster.cpus} CPUs")


def _judge(config: RunConfig) -> Check:
    from jobs.judge import check_server

    assert config.judge is not None
    check_server(config.judge)
    return Check("ok", "judge", f"{config.judge.label}: the server answers and takes the key")


def _guarded(what: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except UserError as error:
        return Check("FAIL", what, str(error))
