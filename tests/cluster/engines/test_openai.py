"""The API engine against a real server: waits, concurrency, budget, its config."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_engine import BILL, KEY, PRICE, ask, echo, engine, many, request
from api_server import Answer, ApiServer, fault, said, serve, token

from cluster.engines import agent_hash, check_agent, make_engine
from cluster.engines.openai import HANGS, OpenAIEngine, account
from cluster.engines.openai_spend import Spend, SpendReader
from sentinel.engine import (
    EngineError,
    Generation,
    Message,
    Request,
    Stop,
)
from sentinel.errors import UserError


def test_an_answer() -> None:
    tops = (-0.1, -3.0, -4.0, -5.0, -6.0)
    body = said("SQL: select 1", cached=40, logprobs={"content": [token(-0.1, *tops)] * 10})
    generation, server = ask([body], request(stop=("X",), temperature=0.5, seed=7))
    assert (generation.text, generation.finish_reason) == ("SQL: select 1", "stop")
    assert (generation.prompt_tokens, generation.generated_tokens) == (100, 10)
    assert generation.cost_usd == pytest.approx((60 * 1000 + 40 * 100 + 10 * 10_000) / 1e6)
    assert (generation.token_ids, generation.top_ids) == (None, None)
    assert np.array_equal(generation.logprobs, np.full(10, -0.1, np.float32))
    assert generation.top_logprobs.shape == (10, 5)
    assert np.array_equal(generation.top_logprobs[3], np.float32(tops))
    (sent,) = server.requests
    assert sent["messages"] == [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "how many?"},
    ]
    assert {k: sent[k] for k in ("model", "temperature", "seed", "max_tokens", "stop")} == {
        "model": "m", "temperature": 0.5, "seed": 7, "max_tokens": 20, "stop": ["X"],
    }  # fmt: skip
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 5)
    assert server.keys == [f"Bearer {KEY}"]


@pytest.mark.parametrize(
    "first",
    [
        fault(500),
        fault(503, headers={"retry-after": "0.01"}),
        fault(429),
        Answer(b"x"),
        Answer(said(), cut=9),
    ],
)
def test_a_fault_that_passes_costs_an_attempt(first: Answer) -> None:
    generation, server = ask([first, said()])
    assert generation.text == "FINAL: null"
    assert len(server.requests) == 2
    assert generation.cost_usd == pytest.approx(BILL)


def test_a_billed_reply_of_no_use_is_part_of_the_cost() -> None:
    generation, _ = ask([said(None), {**said(), "choices": []}, said()], spend=Spend("a"))
    assert generation.cost_usd == pytest.approx(3 * BILL)


def test_a_hang_and_a_slow_stream_end_at_the_timeout() -> None:
    for answer in (Answer(said(), delay=30), Answer(said(), drip=0.05)):
        begun = time.perf_counter()
        error, server = ask([answer], timeout=0.3)
        assert type(error) is EngineError
        assert "no reply within 0.3 s" in str(error)
        assert len(server.requests) == HANGS
        assert time.perf_counter() - begun < 3


@pytest.mark.parametrize("date", [False, True])
def test_retry_after_is_honoured(date: bool) -> None:
    # An HTTP date has whole seconds: 1…2 s ahead, whatever the fraction now.
    def script(number: int, _: Any) -> Answer:
        wait = formatdate(time.time() + 2, usegmt=True) if date else "0.4"
        return Answer(said()) if number else fault(429, headers={"retry-after": wait})

    generation, server = ask(script)
    assert generation.text == "FINAL: null"
    waited = server.arrived[1] - server.arrived[0]
    assert (0.9 if date else 0.4) <= waited < 2.5


def test_concurrency_halves_at_429_and_recovers() -> None:
    limits: list[int] = []
    together = threading.Barrier(20)

    def script(number: int, asked: Any) -> Answer:
        limits.append(box[0].limit.limit)
        if number < 20:
            together.wait(30)  # nobody is answered before twenty have asked
        return fault(429) if 20 <= number < 24 else Answer(echo(asked))

    box: list[OpenAIEngine] = []

    async def run() -> list[Any]:
        box.append(engine(server, first_wait=0.01))
        try:
            asked = [box[0].generate(request(f"q{i}", i)) for i in range(200)]
            return await asyncio.gather(*asked)
        finally:
            await box[0].close()

    with serve(script) as server:
        results = asyncio.run(run())
    assert [r.text for r in results] == [f"SQL: q{i}" for i in range(200)], "each its own answer"
    assert len(server.requests) == 204
    assert server.most_in_flight == 20
    made = box[0]
    assert 1 <= made.limit.halvings <= 3, "one congestion, not four"
    assert min(limits) < 15, "halved"
    assert limits[-1] > min(limits), "and recovered"
    assert made.limit.in_flight == 0


def test_mixed_faults_lose_nothing_and_charge_once(tmp_path: Path) -> None:
    kinds = [fault(500), fault(429), Answer(b"{"), said(None), {**said(), "choices": []}]

    def script(number: int, asked: Any) -> Answer:
        bad = kinds[number // 3 % len(kinds)]
        if number % 3 or number > 60:
            return Answer(echo(asked))
        return bad if isinstance(bad, Answer) else Answer(bad)

    results, _, server = many(script, 60, spend=Spend("a", folder=tmp_path))
    assert [r.text for r in results] == [f"SQL: q{i}" for i in range(60)]
    billed = len(server.requests) - sum(
        1 for n in range(len(server.requests)) if n % 3 == 0 and n <= 60 and n // 3 % 5 < 3
    )
    total = sum(r.cost_usd for r in results)
    assert total == pytest.approx(billed * BILL)
    assert SpendReader(tmp_path).total() == pytest.approx(total)


def test_a_budget_stops_the_run_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    def script(_: int, asked: Any) -> Answer:
        return Answer(echo(asked), delay=0.01)

    def collect(limit: float, wanted: range) -> tuple[list[Any], OpenAIEngine, ApiServer]:
        return many(script, len(wanted), spend=Spend("a", limit, tmp_path), concurrency=4)

    first, made, server = collect(10 * BILL, range(30))
    stopped = [r for r in first if isinstance(r, Stop)]
    done = [r for r in first if isinstance(r, Generation)]
    assert len(done) + len(stopped) == 30
    assert 6 <= len(done) <= 10, "no further than the budget, and most of it"
    assert len(server.requests) == len(done), "what is refused is not sent"
    assert "raise collect.budget_usd and run again" in str(stopped[0])
    assert "$2.00" in str(stopped[0])
    assert "\n" not in str(stopped[0])
    assert made.spend.spent == pytest.approx(len(done) * BILL)

    again, *_ = collect(10 * BILL, range(30))
    assert sum(isinstance(r, Generation) for r in again) <= 10 - len(done), "spend is remembered"
    rest, *_ = collect(1000 * BILL, range(30))
    assert all(isinstance(r, Generation) for r in rest)


def test_what_is_left_belongs_to_the_episodes_in_flight(tmp_path: Path) -> None:
    first = request()
    then = Request(
        "e/2", None, (*first.messages, Message("assistant", "x"), Message("user", "y")), 20
    )

    async def run() -> list[Any]:
        made = engine(server, spend=Spend("a", 2 * BILL, tmp_path))
        try:  # each may cost a little more than BILL, and costs half of it
            going = asyncio.create_task(made.generate(first))
            await asyncio.sleep(0.1)
            waits = asyncio.create_task(made.generate(then))
            with pytest.raises(Stop):
                await made.generate(request())  # would begin an episode while another one waits
            return [await going, await waits]
        finally:
            await made.close()

    with serve([Answer(said(tokens=(50, 5)), delay=0.3)]) as server:
        results = asyncio.run(run())
    assert all(isinstance(r, Generation) for r in results)
    assert server.most_in_flight == 1, "the second waited for the room of the first"


def test_close_waits_for_the_reply_in_flight() -> None:
    async def run() -> Any:
        made = engine(server)
        going = asyncio.create_task(made.generate(request()))
        await asyncio.sleep(0.1)
        await made.close()
        with pytest.raises(EngineError, match="closed"):
            await made.generate(request())
        return await going

    with serve([Answer(said(), delay=0.3)]) as server:
        assert asyncio.run(run()).text == "FINAL: null"


def test_without_usage_the_budget_is_charged_the_most(tmp_path: Path) -> None:
    spend = Spend("a", folder=tmp_path)
    generation, _ = ask([said(tokens=None)], spend=spend)
    assert generation.cost_usd is None
    assert (generation.prompt_tokens, generation.generated_tokens) == (0, 0)
    assert spend.own >= 20 * PRICE.generated / 1e6


def test_fields_that_a_server_does_not_take_are_left_out_once() -> None:
    def script(_: int, asked: Any) -> Answer:
        if "max_tokens" in asked:
            return fault(400, "Unsupported parameter: 'max_tokens' is not supported here. "
                         "Use 'max_completion_tokens' instead.", param="max_tokens",
                         code="unsupported_parameter")  # fmt: skip
        if "logprobs" in asked:
            return fault(403, "You are not allowed to request logprobs from this model")
        if "seed" in asked:
            return fault(422, "extra fields not permitted: body -> seed")
        return Answer(echo(asked))

    results, _, server = many(script, 12)
    assert [r.text for r in results] == [f"SQL: q{i}" for i in range(12)]
    assert all(r.logprobs is None for r in results)
    assert server.requests[-1].keys() == {
        "model", "messages", "temperature", "max_completion_tokens",
    }  # fmt: skip
    refuse = fault(400, "Unsupported parameter: max_tokens, max_completion_tokens",
                   code="unsupported_parameter")  # fmt: skip
    error, server = ask([refuse])
    assert type(error) is EngineError
    assert len(server.requests) == 2, "each name once, no more"


def test_a_server_that_is_not_there() -> None:
    with serve([said()]) as server:
        pass

    async def run() -> None:
        made = engine(server)
        try:
            await made.generate(request())
        finally:
            await made.close()

    with pytest.raises(EngineError, match=r"connection lost.*\(5 attempts\)"):
        asyncio.run(run())


def test_text_without_bytes_is_sent_all_the_same() -> None:
    generation, server = ask([said("ok")], request("a\ud800b\x00"))
    assert generation.text == "ok"
    assert server.requests[0]["messages"][1]["content"] == "a?b\x00"


def config(url: str | None, **more: Any) -> dict[str, Any]:
    return {"name": "a", "engine": "openai", "model": "m", "base_url": url, **more}


def test_a_missing_or_odd_key_is_found_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match=r"no API key in \$OPENAI_API_KEY"):
        make_engine(config(None))
    with pytest.raises(UserError, match=r"no API key in \$MY_KEY"):
        check_agent(config("http://127.0.0.1:9/v1", api_key_env="MY_KEY"))
    for odd in ("sk-ключ-123", "sk 123", "sk\n123"):
        monkeypatch.setenv("OPENAI_API_KEY", odd)
        with pytest.raises(UserError, match="holds no key") as found:
            account(config(None))
        assert odd not in str(found.value)
    assert account(config("http://127.0.0.1:9/v1")).key_env is None, "a local server wants none"


def test_a_refused_key_is_found_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with serve([said()]) as server:
        check_agent(config(server.url, api_key_env="MY_KEY"))
        assert server.keys == [f"Bearer {KEY}"]
        assert server.requests == [], "nothing that costs"
    refused = fault(401, f"Incorrect API key provided: {KEY}")
    with serve([said()], refused) as server:
        with pytest.raises(UserError, match=r"refused the key in \$MY_KEY") as found:
            check_agent(config(server.url, api_key_env="MY_KEY"))
        assert KEY not in str(found.value)
        with pytest.raises(UserError, match="wants a key"):
            check_agent(config(server.url))
    for passes in (fault(404), fault(500), fault(401, "You have insufficient permissions")):
        with serve([said()], passes) as server:
            check_agent(config(server.url, api_key_env="MY_KEY"))
    with pytest.raises(UserError, match="cannot reach"):
        check_agent(config(server.url, api_key_env="MY_KEY"))


def test_the_engine_of_a_config(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serve([said()]) as server:
        settings = {"price": {"prompt": 1000.0, "generated": 10_000.0}, "concurrency": 3,
                    "request_timeout": 9.0, "budget_usd": 1.0, "spend_dir": str(tmp_path),
                    "context_window": 99,
                    "template_kwargs": {"enable_thinking": False}}  # fmt: skip
        agent = config(server.url, **settings)

        async def run() -> Generation:
            made = make_engine(agent)
            assert isinstance(made, OpenAIEngine)
            assert (made.limit.most, made.context_window) == (3, 99)
            assert made.revision.endswith(f"m at {server.url[7:-3]}")
            try:
                return await made.generate(request())
            finally:
                await made.close()

        with caplog.at_level(logging.DEBUG, "cluster"):
            generation = asyncio.run(run())
    assert generation.cost_usd == pytest.approx(BILL)
    (line,) = [json.loads(x) for p in tmp_path.glob("*.jsonl") for x in p.read_text().splitlines()]
    assert line == {"agent": "a", "request": "e/1", "usd": pytest.approx(BILL)}
    assert "how many" not in caplog.text
    assert server.requests[0]["chat_template_kwargs"] == {"enable_thinking": False}
    plain = agent_hash(config(server.url))
    assert agent_hash(agent) != plain, "a window changes what fits"
    for name in ("price", "concurrency", "request_timeout", "budget_usd", "spend_dir"):
        assert agent_hash(config(server.url, **{name: settings[name]})) == plain
