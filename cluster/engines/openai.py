"""The API engine: the official SDK against OpenAI, or any server that speaks its protocol.

The loop in `generate` is the only layer of retries. Whatever a server answers ends as exactly one
outcome: a generation, an EngineError of its own kind, Stop (the budget, a long wait) or UserError
(a refused key). A reply is charged once, of use or not.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai

from cluster.engines.openai_errors import (
    TOKEN_FIELDS,
    Account,
    Failure,
    charged,
    later,
    status_failure,
)
from cluster.engines.openai_limits import Clock, Concurrency, Sleep, backoff
from cluster.engines.openai_replies import Reply, read_reply
from cluster.engines.openai_spend import Price, Spend
from sentinel.engine import TOP_K, EngineError, Generation, Message, Request, Stop
from sentinel.errors import UserError

log = logging.getLogger(__name__)
DEFAULT_URL = "https://api.openai.com/v1"
DEFAULT_KEY_ENV = "OPENAI_API_KEY"
TRIES = 5
"""Attempts at a request that meets faults which may pass."""
HANGS = 2
"""Attempts that may end without a reply in time: each costs the whole timeout."""
PATIENCE = 900.0
"""Seconds for which one request meets nothing but 429."""
LONGEST_WAIT = 600.0
"""The longest Retry-After that is waited for (s); a longer one stops the run cleanly."""
CHECK_SECONDS = 20.0


class OpenAIEngine:
    """Answers requests by `POST {url}/chat/completions`; many may be in flight.

    Args:
        account: the agent, its model, the server and the key.
        price: dollars per million tokens; None: costs are unknown.
        spend: the budget of the run.
        concurrency: requests in flight at most; halved while the server says 429.
        timeout: seconds for one reply, however slowly it comes.
        context_window: 0 where it is not known; then the server says what does not fit.
        template_kwargs: variables of the server's chat template, where it takes them.
        first_wait: seconds before the second attempt; doubled from there.
        clock: monotonic seconds.
        sleep: waits for seconds.
    """

    def __init__(
        self,
        account: Account,
        price: Price | None = None,
        spend: Spend | None = None,
        concurrency: int = 20,
        timeout: float = 120.0,
        context_window: int = 0,
        template_kwargs: Mapping[str, Any] | None = None,
        first_wait: float = 1.0,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.name, self.account, self.price = account.agent, account, price
        self.context_window = context_window
        self.spend = spend if spend is not None else Spend(account.agent)
        self.limit = Concurrency(concurrency, clock, sleep)
        self.revision = f"openai {openai.__version__}, {account.model} at {_host(account.url)}"
        self._template_kwargs = dict(template_kwargs or {})
        self._timeout, self._first_wait = timeout, first_wait
        self._clock, self._sleep = clock, sleep
        self._without: set[str] = set()
        self._token_field = TOKEN_FIELDS[0] if account.url == DEFAULT_URL else TOKEN_FIELDS[1]
        self._swapped = False
        self._tokens_per_byte = 0.4
        self._models: set[str] = set()
        self._closed = self._uncounted = False
        self._busy, self._idle = 0, asyncio.Event()
        self._client = openai.AsyncOpenAI(
            api_key=account.key, base_url=account.url, max_retries=0, timeout=timeout
        )

    async def generate(self, request: Request) -> Generation:
        """Answer one request. Raises EngineError, Stop or UserError."""
        self._busy += 1
        try:
            return await self._answer(request)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def close(self) -> None:
        """Wait for the replies in flight, close the connections and sync what was spent."""
        self._closed = True
        if self._busy:
            self._idle.clear()
            await self._idle.wait()
        await self._client.close()
        self.spend.close()

    async def _answer(self, request: Request) -> Generation:
        met: Counter[str] = Counter()
        total: float | None = None
        begun = self._clock()
        while True:
            if self._closed:
                raise EngineError("the engine is closed", total)
            result, seconds = await self._attempt(request, first=not met)
            total = _sum(total, result.cost_usd)
            if isinstance(result, Reply):
                return _generation(result, total, seconds)
            if result.follow == "without":
                continue
            met[result.follow] += 1
            if (result.after or 0.0) > LONGEST_WAIT:
                raise Stop(
                    f"agent {self.name}: the server asks to wait {result.after:,.0f} s "
                    f"({result.error}); run again after that"
                )
            if result.follow == "slower":
                over = self._clock() - begun > PATIENCE
            else:
                over = met["later"] + met["hung"] >= TRIES or met["hung"] >= HANGS
            if result.follow == "no" or over:
                raise charged(result, total, met.total())
            log.info("%s: attempt %d: %s", request.request_id, met.total(), result.error)
            wait = backoff(met[result.follow], request.request_id, self._first_wait)
            await self._sleep(wait if result.after is None else max(result.after, wait / 10))

    async def _attempt(self, request: Request, *, first: bool) -> tuple[Reply | Failure, float]:
        """One HTTP request: what came of it, and how long it took (s)."""
        sent_at = await self.limit.enter()
        try:
            begins = first and not any(m.role == "assistant" for m in request.messages)
            ceiling = self._ceiling(request)
            await self.spend.reserve(ceiling, begins=begins)
            cost: float | None = None
            begun = self._clock()
            try:
                result = await self._ask(request)
                cost = result.cost_usd
                if isinstance(result, Reply) and cost is None and self.price is not None:
                    cost = ceiling  # the server does not say: the budget is charged the most
            finally:
                self.spend.settle(ceiling, cost, request.request_id)
            seconds = self._clock() - begun
        finally:
            self.limit.leave()
        if isinstance(result, Reply):
            self.limit.succeeded()
            self._learn(request, result)
        elif result.follow == "slower":
            self.limit.slow_down(sent_at, min(result.after or 0.0, LONGEST_WAIT))
        elif result.after is not None:
            self.limit.pause(min(result.after, LONGEST_WAIT))
        return result, seconds

    async def _ask(self, request: Request) -> Reply | Failure:
        fields = self._fields(request)
        try:
            async with asyncio.timeout(self._timeout):  # the SDK's own begins anew with each byte
                reply = await self._client.chat.completions.with_raw_response.create(**fields)
            return read_reply(reply.http_response.content, self.price)
        except (TimeoutError, openai.APITimeoutError):
            text = f"no reply within {self._timeout:g} s"
            return Failure(EngineError(text), "hung")
        except openai.APIStatusError as error:
            headers = {k.lower(): v for k, v in error.response.headers.items()}
            failure = status_failure(
                error.status_code, headers, error.body, self.account, fields, time.time()
            )
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            return later(self.account.clean(f"connection lost: {type(cause).__name__}: {cause}"))
        return self._adapted(failure)

    def _fields(self, request: Request) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "model": self.account.model,
            "messages": [
                {"role": m.role, "content": _sendable(m.content)} for m in request.messages
            ],
            "temperature": request.temperature,
            "seed": request.seed,
            "logprobs": True,
            "top_logprobs": TOP_K,
            self._token_field: request.max_tokens,
        }
        if request.stop:
            fields["stop"] = list(request.stop)
        if self._template_kwargs:  # vLLM and SGLang pass it on to the chat template
            fields["extra_body"] = {"chat_template_kwargs": self._template_kwargs}
        return {k: v for k, v in fields.items() if k not in self._without}

    def _adapted(self, failure: Failure) -> Failure:
        """Remember a field that this server does not take."""
        name = failure.parameter
        if name is None:
            return failure
        if name in TOKEN_FIELDS:
            if name == self._token_field:  # else another request has found it out
                if self._swapped:
                    return Failure(failure.error)
                self._swapped = True
                self._token_field = next(f for f in TOKEN_FIELDS if f != name)
        elif name in ("logprobs", "top_logprobs"):
            self._without |= {"logprobs", "top_logprobs"}
        else:
            self._without.add(name)
        log.warning("%s: the server takes no %s: %s", self.name, name, failure.error)
        return failure

    def _ceiling(self, request: Request) -> float:
        """The most that a request should cost, in dollars."""
        if self.price is None:
            return 0.0
        prompt = int(_bytes(request.messages) * self._tokens_per_byte) + 8 * len(request.messages)
        return self.price.cost(prompt, 0, request.max_tokens)

    def _learn(self, request: Request, reply: Reply) -> None:
        if reply.usage is not None:
            share = reply.usage.prompt / max(_bytes(request.messages), 1)
            self._tokens_per_byte = max(self._tokens_per_byte, share)
        elif not self._uncounted:
            self._uncounted = True
            log.warning("%s: the server reports no usage: tokens and costs are unknown", self.name)
        if reply.model not in self._models:
            self._models.add(reply.model)
            level = logging.INFO if len(self._models) == 1 else logging.WARNING
            log.log(level, "%s: the server answers as %s", self.name, reply.model or "(no name)")


def make(agent: Mapping[str, Any]) -> OpenAIEngine:
    """The engine of an agent's config; raises UserError where its key is missing.

    Besides the agent's settings it reads `budget_usd` and `spend_dir`, the run's budget and the
    folder that remembers what was spent.
    """
    limit, folder = agent.get("budget_usd"), agent.get("spend_dir")
    who = account(agent)
    return OpenAIEngine(
        who,
        price=Price.of(agent.get("price")),
        spend=Spend(
            who.agent,
            None if limit is None else float(limit),
            None if folder is None else Path(folder),
        ),
        concurrency=int(agent.get("concurrency") or 20),
        timeout=float(agent.get("request_timeout") or 120.0),
        context_window=int(agent.get("context_window") or 0),
        template_kwargs=agent.get("template_kwargs"),
    )


def account(agent: Mapping[str, Any]) -> Account:
    """Server and key of an agent's config. Raises UserError naming a variable that is not set."""
    for library in ("httpx", "httpx2", "openai"):  # a line per request says nothing
        logging.getLogger(library).setLevel(logging.WARNING)
    name, url = str(agent.get("name", agent["model"])), agent.get("base_url")
    variable = agent.get("api_key_env") or (DEFAULT_KEY_ENV if url is None else None)
    key = os.environ.get(variable, "").strip() if variable else "none"
    if not key:
        raise UserError(
            f"agent {name}: no API key in ${variable}", f"export {variable}=… and run again"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UserError(
            f"agent {name}: ${variable} holds no key (white space or other characters inside)",
            f"export {variable}=… and run again",
        )
    return Account(name, str(agent["model"]), str(url or DEFAULT_URL), variable, key)


def check(agent: Mapping[str, Any]) -> None:
    """Ask the server for its models, which costs nothing, before a run begins.

    Raises UserError for a key that is missing or refused and for a server out of reach. A server
    that keeps no list of models passes.
    """
    who = account(agent)
    client = openai.OpenAI(api_key=who.key, base_url=who.url, max_retries=1, timeout=CHECK_SECONDS)
    try:
        client.models.with_raw_response.list()
    except openai.AuthenticationError as error:
        failure = status_failure(error.status_code, {}, error.body, who, (), time.time())
        # A restricted key may chat and not list.
        if isinstance(failure.error, UserError) and "permission" not in failure.error.cause:
            raise failure.error from None
    except openai.APIConnectionError as error:
        cause = error.__cause__ or error
        raise UserError(
            f"agent {who.agent}: cannot reach {who.url} ({type(cause).__name__})",
            "start the server, or mend base_url in the agent's config",
        ) from error
    except openai.APIStatusError as error:
        log.info("%s: no list of models (HTTP %d)", who.agent, error.status_code)
    finally:
        client.close()


def _generation(reply: Reply, cost: float | None, seconds: float) -> Generation:
    known = None if reply.logprobs is None else len(reply.logprobs)
    return Generation(
        text=reply.text,
        token_ids=None,
        logprobs=reply.logprobs,
        top_ids=None,
        top_logprobs=reply.top_logprobs,
        finish_reason=reply.finish_reason,
        prompt_tokens=reply.usage.prompt if reply.usage else 0,
        generated_tokens=reply.usage.generated if reply.usage else known or 0,
        seconds=seconds,
        cost_usd=cost,
    )


def _sum(total: float | None, cost: float | None) -> float | None:
    return total if cost is None else (total or 0.0) + cost


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # a lone surrogate has no bytes


def _bytes(messages: Sequence[Message]) -> int:
    return sum(len(m.content.encode("utf-8", "replace")) for m in messages)


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2] or url
