"""A vLLM engine whose core is killed under it, in a process of its own; prints what happened."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import psutil

from cluster.engines import make_engine
from sentinel.engine import EngineDied, Request

AGENT = {
    "name": "killed",
    "engine": "vllm",
    "model": "nano:clinic-sage",
    "device": "cpu",
    "kv_cache_gb": 0.1,
    "context_window": 1024,
}


async def kill(engine: Any) -> dict[str, Any]:
    """Kill the core with four requests in flight; how each of them and the next ended."""
    engine.ends = []  # they do not stop by themselves
    requests = [Request(str(i), (5 + i, 6, 7), (), 900) for i in range(4)]
    tasks = [asyncio.create_task(engine.generate(r)) for r in requests]
    while engine.progress < 64:
        await asyncio.sleep(0.01)
    pids = engine.core_pids
    os.kill(pids[0], signal.SIGKILL)
    ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
    try:
        await engine.generate(requests[0])
        after = "answered"
    except EngineDied as error:
        after = str(error)
    await engine.close()
    for _ in range(100):  # the kernel takes a moment
        left = [p for p in pids if psutil.pid_exists(p) and psutil.Process(p).status() != "zombie"]
        if not left:
            break
        await asyncio.sleep(0.1)
    return {"ended": [type(e).__name__ for e in ended], "after": after, "left": left}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(kill(make_engine(AGENT)))))
