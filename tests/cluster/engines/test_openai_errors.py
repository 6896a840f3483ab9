"""Each kind of reply is one outcome and is charged once, for a request and for an episode."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from api_engine import BILL, CONTEXT, KEY, ask, engine
from api_server import Answer, fault, said, serve

from cluster.engines.openai import TRIES
from cluster.engines.openai_spend import Spend, SpendReader
from sentinel.agent.loop import run_episode
from sentinel.benchmarks.base import Step, Task
from sentinel.engine import (
    ContextOverflow,
    EngineError,
    Refusal,
    Stop,
)
from sentinel.errors import UserError


@pytest.mark.parametrize(
    ("answer", "kind", "says", "attempts", "bills"),
    [
        (Answer(b"<html>busy</html>"), EngineError, "no JSON", TRIES, 0),
        (Answer(b'{"choices": [{"mess'), EngineError, "no JSON", TRIES, 0),
        (Answer(b"[1]"), EngineError, "no JSON object", TRIES, 0),
        ({**said(), "choices": []}, EngineError, "choices: []", TRIES, TRIES),
        ({"error": {"message": "upstream is down"}}, EngineError, "upstream is down", TRIES, 0),
        (said(None), EngineError, "content: null", TRIES, TRIES),
        (said("cut", reason="error"), EngineError, "gave up", TRIES, TRIES),
        (said("bad", reason="content_filter"), Refusal, "content filter", 1, 1),
        (said(None, refusal="I will not"), Refusal, "I will not", 1, 1),
        (Answer(said(), cut=50), EngineError, "connection lost", TRIES, 0),
        (fault(500), EngineError, "HTTP 500", TRIES, 0),
        (Answer(b"Bad Gateway", 502), EngineError, "HTTP 502", TRIES, 0),
        (fault(418, "a teapot"), EngineError, "HTTP 418: a teapot", 1, 0),
        (fault(400, "bad image"), EngineError, "bad image", 1, 0),
        (fault(400, CONTEXT, code="context_length_exceeded"), ContextOverflow, "4096", 1, 0),
        (fault(400, CONTEXT, type="BadRequestError", code=400), ContextOverflow, "4096", 1, 0),
        (fault(413, "Prompt is too long"), ContextOverflow, "too long", 1, 0),
        (fault(400, "filtered", code="content_filter"), Refusal, "filtered", 1, 0),
        (fault(403, "Your input was flagged"), Refusal, "flagged", 1, 0),
        (fault(401, f"Incorrect API key provided: {KEY}"), UserError, "SOME_KEY", 1, 0),
        (fault(403, "no such region"), UserError, "SOME_KEY", 1, 0),
        (fault(404, "no such model"), UserError, "no model m", 1, 0),
        (fault(429, "pay", code="insufficient_quota"), UserError, "no credit left", 1, 0),
        (fault(402, "pay"), UserError, "no credit left", 1, 0),
        (fault(429, "later", headers={"retry-after": "7200"}), Stop, "7,200 s", 1, 0),
        (fault(400, "Unsupported value: 'temperature' does not support 0", param="temperature"),
         UserError, "temperature", 1, 0),
    ],
)  # fmt: skip
def test_each_reply_is_an_outcome_of_its_own(
    tmp_path: Path, answer: Any, kind: type[Exception], says: str, attempts: int, bills: int
) -> None:
    error, server = ask([answer], spend=Spend("a", folder=tmp_path))
    assert type(error) is kind
    assert len(server.requests) == attempts, "one layer of retries"
    text = str(error)
    assert says in text
    assert KEY not in text
    assert "\n" not in text
    if isinstance(error, EngineError):
        assert error.cost_usd == (pytest.approx(bills * BILL) if bills else None)
        assert (f"({TRIES} attempts)" in text) == (attempts > 1)
    assert SpendReader(tmp_path).total() == pytest.approx(bills * BILL)


class Env:
    def __init__(self) -> None:
        self.closed = 0

    async def reset(self) -> str:
        return "QUESTION: how many?"

    async def step(self, action: Any) -> Step:
        return Step("1 rows", "ok", done=action.kind == "final", answer="1")

    async def close(self) -> None:
        self.closed += 1


def play(script: Any, env: Env | None = None, **settings: Any) -> Any:
    async def run() -> Any:
        made = engine(server, **settings)
        try:
            return await run_episode(
                made, None, env or Env(), TASK, agent_name="a", benchmark="toy", max_tokens=20
            )
        finally:
            await made.close()

    with serve(script) as server:
        return asyncio.run(run())


TASK = Task("toy", "q", "g", "how many?", answerable=True)


def test_episodes_end_under_names_of_their_own_and_keep_their_cost() -> None:
    act = said("SQL: select 1")
    answered = play([act, fault(500), said(None), said("FINAL_SQL: select 1")])
    assert (answered.end, answered.turns, answered.prefix_property) == ("answered", 2, None)
    assert answered.cost_usd == pytest.approx(3 * BILL)
    assert answered.steps[0].logprobs is None
    filtered = play([act, said("x", reason="content_filter")])
    assert (filtered.end, filtered.turns) == ("content_filter", 1)
    assert filtered.cost_usd == pytest.approx(2 * BILL), "a refused turn is charged as well"
    full = play([act, fault(400, CONTEXT, code="context_length_exceeded")])
    assert (full.end, full.turns, full.cost_usd) == ("context", 1, pytest.approx(BILL))
    broken = play([act, {**said(), "choices": []}])
    assert (broken.end, broken.turns) == ("engine_error", 1)
    assert broken.cost_usd == pytest.approx((1 + TRIES) * BILL)
    assert "choices: []" in broken.error


def test_a_spent_budget_and_a_refused_key_record_no_episode(tmp_path: Path) -> None:
    env = Env()
    with pytest.raises(Stop, match="budget"):
        play([said("SQL: select 1")], env, spend=Spend("a", 2.5 * BILL, tmp_path))
    assert env.closed == 1
    assert SpendReader(tmp_path).total() >= BILL, "what the lost episode cost is not forgotten"
    with pytest.raises(UserError, match=r"refused the key in \$SOME_KEY"):
        play([said("SQL: select 1"), fault(401)], env)
    assert env.closed == 2
