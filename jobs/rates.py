"""Rates of the stages: CPU seconds per unit, learned from finished runs, for `sentinel plan`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.forecast import RunSize
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig


def load(path: Path | None) -> dict[str, Any]:
    """Rates from a file, or those that ship. Raises UserError for a file without any."""
    from cluster.forecast import known_rates

    if path is None:
        return known_rates()
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if "from" in found and "stages" in found:
            return found
    except (OSError, ValueError) as error:
        raise UserError(
            f"no rates in {path}: {error}", f"sentinel plan --run-dir DIR --learn {path}"
        ) from error
    raise UserError(f"no rates in {path}", f"sentinel plan --run-dir DIR --learn {path}")


def learned(config: RunConfig, run_dir: RunDir) -> dict[str, Any]:
    """The rates of a finished run, from its metrics and tables.

    Raises UserError when it holds no finished stage.
    """
    from cluster import forecast

    seconds, memory = _measured(run_dir)
    if not seconds:
        raise UserError(f"{run_dir.root} has no finished stage", "run it first, then learn from it")
    env = json.loads((run_dir.root / "env.json").read_text())
    cpus = config.site.cpus or env["hardware"]["cpus"]
    found = forecast.learn(_size_of(config, run_dir), seconds, memory, cpus)
    day = time.strftime("%Y-%m-%d", time.gmtime(env["at"]))
    return {"from": f"run {config.name} of {day}, {cpus} CPUs", "stages": found}


def _measured(run_dir: RunDir) -> tuple[dict[str, float], dict[str, float]]:
    """Longest successful wall time and highest peak of each stage: resumed runs do little."""
    seconds: dict[str, float] = {}
    memory: dict[str, float] = {}
    try:
        lines = run_dir.metrics_path.read_text(encoding="utf-8").split("\n")
    except OSError:
        lines = []
    for line in filter(None, lines):
        row = json.loads(line)
        stage = row["stage"]
        if row.get("event") == "seconds" and row.get("outcome") == "ok":
            seconds[stage] = max(seconds.get(stage, 0.0), row["seconds"])
        if row.get("event") == "memory":
            memory[stage] = max(memory.get(stage, 0.0), row["peak_mb"])
    return seconds, memory


def _size_of(config: RunConfig, run_dir: RunDir) -> RunSize:
    episodes = turns = tokens = agents = 0
    for benchmark in config.benchmarks:
        for agent in config.agents:
            if not run_dir.table_path("episodes", benchmark.name, agent.name).exists():
                continue
            read = run_dir.read("episodes", benchmark.name, agent.name)
            agents += 1
            episodes += read.num_rows
            turns += sum(read["turns"].to_pylist())
            tokens += sum(read["prompt_tokens"].to_pylist())
            tokens += sum(read["generated_tokens"].to_pylist())
    return size(config, agents=agents, episodes=episodes, turns=turns, tokens=tokens)


def size(config: RunConfig, *, agents: int, episodes: int, turns: float, tokens: float) -> RunSize:
    """What the stages after collection grow with; all numbers are sums over agents."""
    from cluster.forecast import RunSize

    heads = config.heads
    return RunSize(
        agents=agents,
        episodes=episodes,
        turns=turns,
        tokens=tokens,
        fits=2 * (heads.folds + 1),
        epochs=heads.epochs if heads.kind == "encoder" else 1,
        resamples=config.bootstrap.resamples,
        searches=agents * config.cascade.seeds,
        encoder=heads.encoder_name,
        refits=_refits(config),
    )


def _refits(config: RunConfig) -> str:
    """What the audit fits again, with which heads: that is most of its time."""
    encoder, audit = config.heads.encoder_name, config.audit
    parts = [] if audit.loop == "off" else [encoder if audit.loop == "heads" else "tfidf"]
    if audit.seeds and config.heads.kind != "tfidf":
        parts.append(f"{audit.seeds} seeds of {encoder}")
    return ", ".join(parts) or "no refits"
