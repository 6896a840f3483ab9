"""The API engine on a server of a test: one request, many at once, and what came of them."""

from __future__ import annotations

import asyncio
from typing import Any

from api_server import ApiServer, said, serve

from cluster.engines.openai import OpenAIEngine
from cluster.engines.openai_errors import Account
from cluster.engines.openai_spend import Price
from sentinel.engine import Message, Request

KEY = "sk-secret-0123456789"
PRICE = Price(prompt=1000.0, cached=100.0, generated=10_000.0)
BILL = (100 * 1000.0 + 10 * 10_000.0) / 1e6
"""Dollars of one reply of `said`: 100 prompt and 10 generated tokens."""
CONTEXT = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"


def request(text: str = "how many?", number: int = 1, **more: Any) -> Request:
    messages = (Message("system", "be good"), Message("user", text))
    return Request(f"e/{number}", None, messages, max_tokens=20, **more)


def engine(server: ApiServer, **settings: Any) -> OpenAIEngine:
    who = Account("a", "m", server.url, "SOME_KEY", KEY)
    return OpenAIEngine(who, **{"price": PRICE, "first_wait": 0.002, "timeout": 5.0, **settings})


def ask(script: Any, asked: Request | None = None, **settings: Any) -> tuple[Any, ApiServer]:
    """What one request comes to: a generation or an exception; and what the server saw."""

    async def run() -> Any:
        made = engine(server, **settings)
        try:
            return await made.generate(asked or request())
        except Exception as error:
            return error
        finally:
            await made.close()

    with serve(script) as server:
        return asyncio.run(run()), server


def many(script: Any, count: int, **settings: Any) -> tuple[list[Any], OpenAIEngine, ApiServer]:
    async def run() -> tuple[list[Any], OpenAIEngine]:
        made = engine(server, **settings)
        try:
            asked = [made.generate(request(f"q{i}", i)) for i in range(count)]
            return await asyncio.gather(*asked, return_exceptions=True), made
        finally:
            await made.close()

    with serve(script) as server:
        results, made = asyncio.run(run())
        return results, made, server


def echo(asked: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return said(f"SQL: {asked['messages'][-1]['content']}", **settings)
