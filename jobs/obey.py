"""Which frozen monitor an agent's collection obeys (`stop_with`), refused before anything runs.

A monitor knows one agent on one benchmark: of others, of this same run, or with a changed file, it
decides nothing here. Each fault is one line with the way out.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import files
from cluster.obey import Orders
from sentinel.errors import UserError
from sentinel.monitor import archive, frozen

if TYPE_CHECKING:
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig
    from jobs.sections import AgentConfig, BenchmarkConfig
    from sentinel.agent.react import Dialect

KINDS = {"sentinel": archive.MANIFEST, "cascade": frozen.CASCADE}
"""Method → the file that its monitors' folders have."""
LEAVE = "or remove stop_with"


def check_path(config: RunConfig, run_dir: RunDir) -> None:
    """Raise UserError where `stop_with` is no folder, or lies in the run that is to obey it."""
    if config.stop_with is None:
        return
    path = Path(config.stop_with)
    if not path.is_dir():
        raise UserError(
            f"stop_with: {path} is no folder",
            f"name RUN/monitor, or RUN/monitor/BENCHMARK/AGENT/sentinel of another run, {LEAVE}",
        )
    if path.resolve().is_relative_to(run_dir.root.resolve()):
        raise UserError(
            f"stop_with: {path} is of this same run, and episodes that it stopped have no outcome",
            f"give this run a name of its own (name=NEW), {LEAVE}",
        )


def orders(
    config: RunConfig,
    run_dir: RunDir,
    item: BenchmarkConfig,
    agent: AgentConfig,
    *,
    agent_hash: str,
    fingerprint: str,
    dialect: Dialect,
) -> Orders | None:
    """What an agent's collection obeys; None without `stop_with`.

    `agent_hash` and `fingerprint` name the agent and the benchmark that are to be collected.
    Raises UserError for a monitor that is not there, is damaged, or is of others.
    """
    if config.stop_with is None:
        return None
    method, folder = _find(config, item.name, agent.name)
    found = _sentinel if method == "sentinel" else _cascade
    made, home = found(config, folder, agent)
    where = f"stop_with: monitor {folder}"
    if home["benchmark"] != item.name:
        raise UserError(
            f"{where} is of benchmark {home['benchmark']}, not {item.name}",
            f"name one of {item.name}/{agent.name}, {LEAVE}",
        )
    if agent_hash not in home["agents"]:
        raise UserError(
            f"{where} is of an agent with other weights or settings than {agent.name}",
            f"give back the agent as it was, fit a monitor of it, {LEAVE}",
        )
    if home["dialect"] not in (None, dialect):
        raise UserError(
            f"{where} reads another dialect than {item.name} writes", f"fit it again, {LEAVE}"
        )
    # What the episodes depend on, where collection recorded it; else the settings, paths and all.
    theirs, ours = home["collected"], files.digest(fingerprint)
    if theirs is None:
        theirs, ours = home["settings"], files.digest(item.mapping())
    if theirs not in (None, ours) and not config.obey.other_tasks:
        raise UserError(
            f"{where} is of other tasks or settings of {item.name}",
            f"set obey.other_tasks=true to obey it all the same, {LEAVE}",
        )
    own = _find_in(run_dir.root / "monitor" / _name(item.name) / _name(agent.name), method)
    if own is not None and files.read_json(own / KINDS[method]) == files.read_json(
        folder / KINDS[method]
    ):
        raise UserError(
            f"{where} is a copy of this same run's own",
            f"give this run a name of its own (name=NEW), {LEAVE}",
        )
    return made


def _find(config: RunConfig, benchmark: str, agent: str) -> tuple[str, Path]:
    """Method and folder of an agent's monitor."""
    path, wanted = Path(str(config.stop_with)), config.obey.method
    pair = Path(_name(benchmark)) / _name(agent)
    places = (path, path / _name(agent), path / pair, path / "monitor" / pair)
    found = [
        (method, folder)
        for place in places
        for method in KINDS
        if (folder := _find_in(place, method)) is not None
    ]
    chosen = [f for f in found if wanted in (None, f[0])]
    if len(chosen) == 1:
        return chosen[0]
    if not chosen:
        kind = f"{wanted} monitor" if wanted else "monitor"
        others = "".join(f", only {folder}" for _, folder in found[:1])
        raise UserError(
            f"stop_with: {path} has no {kind} of {benchmark}/{agent}{others}",
            "sentinel calibrate exports it, or sentinel search in strict mode; "
            f"name its folder, {LEAVE}",
        )
    raise UserError(
        f"stop_with: {path} has a sentinel and a cascade monitor of {benchmark}/{agent}",
        "set obey.method=sentinel or obey.method=cascade",
    )


def _find_in(place: Path, method: str) -> Path | None:
    for folder in (place, place / method):
        if (folder / KINDS[method]).is_file():
            return folder
    return None


def _sentinel(config: RunConfig, folder: Path, agent: AgentConfig) -> tuple[Orders, dict[str, Any]]:
    from sentinel.agent.react import Dialect
    from sentinel.exact import decimal_text
    from sentinel.monitor.frozen import read_policy
    from sentinel.monitor.play import check_system

    policy, manifest = read_policy(folder)
    settings = config.obey
    lam = None if settings.lam is None else decimal_text(settings.lam)
    if lam is None and (settings.system == "gate" or len(policy.stops) == 1):
        lam = next(iter(policy.stops), "1")  # the gate reads no λ
    if lam is None:
        raise UserError(
            f"stop_with: monitor {folder} has stops for several λ",
            f"set obey.lam to one of: {', '.join(policy.stops)}",
        )
    check_system(policy, lam, settings.system)
    task, made = manifest["fingerprints"]["task"], manifest["fingerprints"]["agent"]
    home = {
        "benchmark": manifest["benchmark"],
        "agents": made["hashes"],
        "dialect": Dialect(**manifest["dialect"]),
        "settings": task["settings"],
        "collected": task.get("collected"),
    }
    return Orders(str(folder), manifest["hash"], lam=lam, system=settings.system), home


def _cascade(config: RunConfig, folder: Path, agent: AgentConfig) -> tuple[Orders, dict[str, Any]]:
    from sentinel.probes.monitor import read

    monitor, target = read(folder), config.obey.target
    if target is None and len(monitor.policies) == 1:
        target = next(iter(monitor.policies))
    if target is None:
        raise UserError(
            f"stop_with: monitor {folder} has policies for several targets",
            f"set obey.target to one of: {', '.join(monitor.policies)}",
        )
    monitor.policy(target)
    if monitor.reads_hidden and agent.engine != "transformers":
        raise UserError(
            f"stop_with: scorer {monitor.probes.scorer} of {folder} reads hidden states, which "
            f"engine {agent.engine} does not give",
            f"use cascade.deploy=surface, tfidf or heads, or engine: transformers, {LEAVE}",
        )
    home = {
        "benchmark": monitor.benchmark,
        "agents": [monitor.agent_hash],
        "dialect": None,
        "settings": monitor.facts.get("settings"),
        "collected": monitor.facts.get("collected"),
    }
    return Orders(str(folder), monitor.hash, target=target), home


def _name(name: str) -> str:
    return files.safe_name(name)
