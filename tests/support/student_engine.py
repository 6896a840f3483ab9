"""A deterministic engine that knows the hospital's answers, and how sure it is, most of the time.

`engine: custom`, `factory: student_engine:make`, `model: SKILL` (share of questions it knows) or
`SKILL:N`, where the hospital is asked N questions.
Wrong answers mostly come with a doubtful thought, so that heads and decisions can learn something.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from sentinel.benchmarks.registry import load
from sentinel.engine import Generation, Request

QUESTIONS = 300
CLINIC = {"name": "clinic", "kind": "clinic", "n_questions": QUESTIONS}
WRONG = "select count(*) + 100000 from patients"


class Student:
    """Looks once, then commits: gold where it knows, nonsense where it does not."""

    context_window, revision = 100_000, "student 1"

    def __init__(self, name: str, skill: float, questions: int = QUESTIONS) -> None:
        self.name, self.skill = name, skill
        world = load({**CLINIC, "n_questions": questions})
        self._gold = {t.text: t.gold for t in world.tasks()}

    async def generate(self, request: Request) -> Generation:
        question = next(m.content for m in request.messages if m.role == "user")
        text = next(t for t in self._gold if t in question)
        luck = hashlib.sha256(f"{self.name}\0{text}".encode()).digest()
        turns = sum(m.role == "assistant" for m in request.messages)
        await asyncio.sleep(0)
        return _generation(self._reply(text, luck, turns), luck)

    def _reply(self, text: str, luck: bytes, turns: int) -> str:
        gold, knows = self._gold[text], luck[0] / 256 < self.skill
        sure = knows if luck[1] > 25 else not knows
        mood = "this is clear" if sure and gold else "not certain, perhaps missing"
        if turns == 0:
            return f"THOUGHT: {mood}\nSQL: select count(*) from patients"
        if luck[2] < 20:
            return f"THOUGHT: {mood}\nFINAL: null"
        sql = gold if gold and knows else WRONG
        return f"THOUGHT: {mood}\nFINAL_SQL: {sql}"

    async def close(self) -> None:
        pass


def _generation(text: str, luck: bytes) -> Generation:
    n = 5
    tops = np.tile(np.float32([-0.1, -3, -4, -5, -6]) - luck[3] / 256, (n, 1))
    return Generation(
        text=text,
        token_ids=np.arange(n, dtype=np.int32),
        logprobs=tops[:, 0].copy(),
        top_ids=np.tile(np.arange(5, dtype=np.int32), (n, 1)),
        top_logprobs=tops,
        finish_reason="stop",
        prompt_tokens=50,
        generated_tokens=n,
    )


def make(agent: Mapping[str, Any]) -> Student:
    """The student of an agent config."""
    skill, _, questions = str(agent["model"]).partition(":")
    return Student(str(agent["name"]), float(skill), int(questions or QUESTIONS))
