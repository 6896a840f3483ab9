"""Whole episodes on a real model under several templates: what is stored is what it saw."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tiny_tokenizers import CHATML, LLAMA31, NO_SYSTEM, PHI4_MINI, QWEN3, write_llama

from sentinel.agent.loop import run_episode
from sentinel.benchmarks.base import Step, Task
from sentinel.engine import Generation, Request
from sentinel.episodes import Episode

pytest.importorskip("torch")

from cluster.engines.transformers import TransformersEngine, make

TASK = Task("toy", "q", "g", "how many?", answerable=True)


class Env:
    async def reset(self) -> str:
        return "QUESTION: how many?"

    async def step(self, action: Any) -> Step:
        return Step("1 rows", "ok")

    async def close(self) -> None:
        pass


class Listening:
    """The engine, and every prompt that it was given."""

    def __init__(self, engine: TransformersEngine) -> None:
        self.engine, self.encoder = engine, engine.encoder
        self.name, self.revision = engine.name, engine.revision
        self.context_window = engine.context_window
        self.prompts: list[tuple[int, ...]] = []

    async def generate(self, request: Request) -> Generation:
        assert request.prompt_ids is not None
        self.prompts.append(request.prompt_ids)
        return await self.engine.generate(request)

    async def close(self) -> None:
        await self.engine.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("llama"), window=1024)


@pytest.mark.parametrize(
    ("template", "kwargs", "holds"),
    [
        (CHATML, {}, True),
        (NO_SYSTEM, {}, True),
        (LLAMA31, {"date_string": "26 Jul 2024"}, True),
        (PHI4_MINI, {}, True),
        (QWEN3, {"enable_thinking": False}, False),
    ],
)
def test_prompts_are_stored_as_they_were(
    folder: Path, tmp_path: Path, template: str, kwargs: dict[str, Any], holds: bool
) -> None:
    own = tmp_path / "own.jinja"
    own.write_text(template)
    agent = {
        "name": "a",
        "model": str(folder),
        "device": "cpu",
        "chat_template_file": str(own),
        "template_kwargs": kwargs,
    }

    async def play() -> tuple[Episode, Listening]:
        engine = Listening(make(agent))
        try:
            settings: dict[str, Any] = {"agent_name": "a", "benchmark": "toy", "max_turns": 3}
            settings |= {"max_tokens": 12, "system_prompt": "be good"}
            return await run_episode(engine, engine.encoder, Env(), TASK, **settings), engine
        finally:
            await engine.close()

    episode, engine = asyncio.run(play())
    assert (episode.end, episode.turns) == ("cap", 3)
    assert episode.prefix_property is holds
    assert [s.prompt_is_full for s in episode.steps] == [True, not holds, not holds]
    seen: list[int] = []
    for step, prompt in zip(episode.steps, engine.prompts, strict=True):
        seen = (step.prompt_ids or []) if step.prompt_is_full else seen + (step.prompt_ids or [])
        assert tuple(seen) == prompt
        seen = seen + (step.generated_ids or [])
