"""Log-probability features: their share of the time of the collection that they come from.

The four uncertainty features of every prefix of every episode, by inner clock, over the seconds
that the embedded engine and the sandbox took to collect these episodes in this process.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
os.environ.setdefault("OMP_NUM_THREADS", "2")

import harness  # noqa: E402

from sentinel import features  # noqa: E402
from sentinel.agent.loop import run_task  # noqa: E402
from sentinel.benchmarks import registry  # noqa: E402
from sentinel.episodes import Episode  # noqa: E402

CLINIC = {"name": "clinic", "kind": "clinic", "n_questions": 200}
AGENT = {"name": "sage", "engine": "transformers", "model": "nano:clinic-sage", "device": "cpu"}
CONCURRENCY = 32


async def collect(n: int) -> tuple[list[Episode], float]:
    """n episodes, as many at once as a replica holds, and the seconds they took."""
    from cluster.engines import make_engine

    benchmark = registry.load(dict(CLINIC))
    with tempfile.TemporaryDirectory() as cache:
        benchmark.prepare(Path(cache))
        engine = make_engine(AGENT)
        places = asyncio.Semaphore(CONCURRENCY)

        async def one(task: object) -> Episode:
            async with places:
                return await run_task(engine, benchmark, task, agent="sage", max_tokens=192)  # type: ignore[arg-type]

        try:
            begun = time.perf_counter()
            found = await asyncio.gather(*(one(task) for task in benchmark.tasks()[:n]))
            return found, time.perf_counter() - begun
        finally:
            await engine.close()
            benchmark.close()


def bench(tiny: bool) -> Iterable[harness.Line]:
    """One collection; its features seven times."""
    episodes, took = asyncio.run(collect(20 if tiny else 200))
    shares = []
    for _ in range(2 if tiny else 7):
        clock = harness.InnerClock()
        timed = clock.wrap(features._uncertainty)
        rows = [timed(episode.steps) for episode in episodes if episode.steps]
        assert all(row.shape[1] == 4 for row in rows)
        shares.append(clock.spent_ns / 1e9 / took)
    yield harness.Line("logprob_features_share", harness.summary(shares), "", at_most=0.03)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, bench))
