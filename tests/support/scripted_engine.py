"""An engine that says what a test wrote down: texts, generations or exceptions, turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from sentinel.agent.chat import ChatEncoder
from sentinel.engine import Generation, Request


def generation(
    text: str, ids: Iterable[int] = (), *, finish_reason: str = "stop", prompt_tokens: int = 0
) -> Generation:
    """A generation of `text` with made-up telemetry for its `ids`."""
    token_ids = np.fromiter(ids, dtype=np.int32)
    n = len(token_ids)
    tops = np.tile(np.log(np.float32([0.5, 0.25, 0.125, 0.0625, 0.03125])), (n, 1))
    return Generation(
        text=text,
        token_ids=token_ids,
        logprobs=tops[:, 0].copy(),
        top_ids=np.tile(np.arange(5, dtype=np.int32), (n, 1)),
        top_logprobs=tops,
        finish_reason=finish_reason,  # type: ignore[arg-type]
        prompt_tokens=prompt_tokens,
        generated_tokens=n,
        seconds=0.25,
    )


@dataclass
class ScriptedEngine:
    """Says `script[k]` on call k; the last entry is repeated. Keeps every request."""

    script: list[str | Generation | Exception]
    encoder: ChatEncoder | None = None
    context_window: int = 100_000
    name: str = "scripted"
    revision: str = "scripted 1"
    requests: list[Request] = field(default_factory=list)

    async def generate(self, request: Request) -> Generation:
        said = self.script[min(len(self.requests), len(self.script) - 1)]
        self.requests.append(request)
        await asyncio.sleep(0)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, Generation):
            return said
        ids = self.encoder.encode_text(said) if self.encoder else range(len(said.split()))
        return generation(said, ids, prompt_tokens=len(request.prompt_ids or ()))

    async def close(self) -> None:
        pass
