"""A deterministic engine for collections: its answer depends on the conversation alone.

Made by `engine: custom`, `factory: scripted_replies:make`; `model` is a folder of switches that
tests flip: `fail` (no answer at all), `kill-TEXT` (a prompt with TEXT kills the process), `slow-S`
(each reply takes S seconds longer).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sentinel.engine import EngineError, Generation, Request

REPLIES = (
    "THOUGHT: look\nSQL: select count(*) from patients",
    "THOUGHT: sure\nFINAL_SQL: select count(*) from patients",
    "THOUGHT: maybe\nFINAL_SQL: select subject_id from patients order by subject_id limit 3",
    "FINAL: null",
    "I would rather not say.",
)


class ScriptedReplies:
    """Waits a moment and says one of five things, chosen by a hash of what it was told."""

    context_window = 100_000

    def __init__(self, name: str, switches: Path, seconds: float) -> None:
        self.name, self.revision = name, "scripted 1"
        self.switches, self.seconds = switches, seconds

    async def generate(self, request: Request) -> Generation:
        told = "\n".join(f"{m.role}: {m.content}" for m in request.messages)
        digest = hashlib.sha256(told.encode("utf-8", "replace")).digest()
        await asyncio.sleep(self.seconds * (0.5 + digest[1] / 255))
        for switch in self.switches.glob("*"):
            if switch.name.startswith("kill-") and switch.name[5:] in told:
                os.kill(os.getpid(), signal.SIGKILL)
            if switch.name.startswith("slow-"):
                await asyncio.sleep(float(switch.name[5:]))
            if switch.name == "fail":
                raise EngineError("no route to the model")
        text = REPLIES[digest[0] % len(REPLIES)]
        n = 1 + digest[2] % 7
        logprobs = -np.frombuffer(digest[:n], dtype=np.uint8).astype(np.float32) / 64
        tops = np.sort(-np.arange(5 * n, dtype=np.float32).reshape(n, 5) / 8, axis=1)[:, ::-1]
        return Generation(
            text=text,
            token_ids=np.arange(n, dtype=np.int32),
            logprobs=logprobs,
            top_ids=np.tile(np.arange(5, dtype=np.int32), (n, 1)),
            top_logprobs=np.ascontiguousarray(tops),
            finish_reason="stop",
            prompt_tokens=len(told.split()),
            generated_tokens=n,
            seconds=self.seconds,
        )

    async def close(self) -> None:
        pass


def make(agent: Mapping[str, Any]) -> ScriptedReplies:
    """`revision` holds the seconds per reply."""
    folder = Path(str(agent["model"]).removeprefix("switches:"))
    return ScriptedReplies(str(agent["name"]), folder, float(agent.get("revision", "0.01")))
