"""Rollouts on vLLM for CPUs: episodes beside the same prompts fed flat, two replicas beside one.

    python tests/bench/by_hand/bench_rollouts_vllm.py --model FOLDER [--max-tokens 64] [--check]

By hand, on a quiet machine with two cores: each engine takes half a minute to load. Episodes run
through the whole production path (`sentinel collect`'s own function, Ray actors, journals, the SQL
sandbox). A replica is pinned to one thread. What is timed is the span from the first episode's
begin to the last one's end, as recorded; loading is not in it. Flat: an engine in this process,
pinned to one thread, is given every recorded prompt at once, each with the number of tokens that
the episode's turn made. Bars for SmolLM2-135M-Instruct: at least 0.85 of flat, at least 1.6 times
one replica; without --model an embedded agent runs, and its figures have no bar.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness

from cluster.engines import make_engine
from cluster.pool import open_cluster
from cluster.run_dir import RunDir
from jobs import collect
from jobs.config import RunConfig
from sentinel.engine import Request

CONCURRENCY = 16
MAX_TOKENS = 64


def agent(model: str | None) -> dict[str, Any]:
    """The agent's config. The window bounds the memory of its cache."""
    common = {"name": "bench", "engine": "vllm", "device": "cpu", "dtype": "float32"}
    if model is None:
        return {**common, "model": "nano:clinic-scout", "max_batch": CONCURRENCY}
    return {**common, "model": model, "context_window": 8192, "max_batch": CONCURRENCY}


def config(model: str | None, episodes: int, workers: int, max_tokens: int) -> RunConfig:
    """One agent on the embedded hospital; a real model gets its instructions and the schema."""
    clinic = {"name": "clinic", "kind": "clinic", "schema_in_prompt": model is not None}
    collected = {"workers": workers, "concurrency": CONCURRENCY, "limit": episodes}
    return RunConfig.from_mapping(
        {
            "name": "bench",
            "benchmarks": [clinic],
            "agents": [agent(model)],
            "collect": {**collected, "max_tokens": max_tokens},
            "heads": {"folds": 2},
        }
    )


def collected(settings: RunConfig, root: Path) -> tuple[float, RunDir]:
    """Seconds from the first episode's begin to the last one's end, and the run."""
    workers = settings.collect.workers
    run_dir = RunDir(root)
    run_dir.prepare(settings.model_dump(mode="json"))
    with open_cluster("local", cpus=workers, object_store_mb=100) as cluster:
        collect.run(settings, run_dir, cluster)
    rows = run_dir.read("episodes")
    assert len(set(rows["worker"].to_pylist())) == workers, "a replica ran no episode"
    begun = rows["started_at"].to_pylist()
    ended = [b + s for b, s in zip(begun, rows["seconds"].to_pylist(), strict=True)]
    return max(ended) - min(begun), run_dir


def requests(run_dir: RunDir) -> list[Request]:
    """Every turn's whole prompt, with as many tokens to make as it made."""
    rows = run_dir.read("turns").sort_by([("episode_id", "ascending"), ("turn", "ascending")])
    found: list[Request] = []
    seen: list[int] = []
    for row in rows.to_pylist():
        prompt = row["prompt_ids"] if row["prompt_is_full"] else seen + row["prompt_ids"]
        seen = prompt + row["generated_ids"]
        made = max(1, row["generated_tokens"] + (row["finish_reason"] == "stop"))  # and the end
        found.append(Request(f"{row['episode_id']}/{row['turn']}", tuple(prompt), (), made))
    return found


def flat(model: str | None, asked: list[Request]) -> tuple[float, int]:
    """Seconds for all prompts, fed at once to an engine on one thread, and the tokens made."""
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0"
    os.environ["OMP_NUM_THREADS"] = "1"
    engine: Any = make_engine(agent(model))

    async def run() -> tuple[float, int]:
        await engine.generate(Request("warm", asked[0].prompt_ids, (), 2))
        begun = time.perf_counter()
        made = await asyncio.gather(*(engine.generate(r) for r in asked))
        seconds = time.perf_counter() - begun
        await engine.close()
        return seconds, sum(g.generated_tokens for g in made)

    return asyncio.run(run())


def bench(model: str | None, episodes: int, max_tokens: int) -> Iterator[harness.Line]:
    """One run each of two replicas, one replica, and flat."""
    barred = model is not None
    with tempfile.TemporaryDirectory(prefix="bench") as tmp:
        two, _ = collected(config(model, episodes, 2, max_tokens), Path(tmp) / "two")
        one, run_dir = collected(config(model, episodes, 1, max_tokens), Path(tmp) / "one")
        asked = requests(run_dir)
        tokens = sum(run_dir.read("episodes")["generated_tokens"].to_pylist())
    fed, made = flat(model, asked)

    def line(name: str, value: float, unit: str = "x", bar: float | None = None) -> harness.Line:
        measured = harness.Measured(value, value, value)
        return harness.Line(name, measured, unit, at_least=bar if barred else None)

    yield line("rollouts.vllm.episodes", tokens / one, "tokens/s")
    yield line("rollouts.vllm.flat", made / fed, "tokens/s")
    yield line("rollouts.vllm.of_flat", (tokens / one) / (made / fed), bar=0.85)
    yield line("rollouts.vllm.two_replicas", one / two, bar=1.6)


def main() -> int:
    """The command line; exit code 1 for a missed bar with --check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="folder of a model; none: an embedded agent, no bars")
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS, help="per turn")
    parser.add_argument("--check", action="store_true", help="fail when a bar is missed")
    args = parser.parse_args()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}", flush=True)
    missed = False
    for line in bench(args.model, args.episodes, args.max_tokens):
        print(line, flush=True)
        missed |= line.missed
    return int(args.check and missed)


if __name__ == "__main__":
    sys.exit(main())
