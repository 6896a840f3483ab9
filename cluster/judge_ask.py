"""Asks a judge many questions: bounded concurrency, one layer of retries, one line per verdict.

The engine (`cluster/engines/openai.py`) has the retries of HTTP, the pace, the budget and the
journal of what was billed. Here a reply that is no digit is asked for again, a verdict is kept the
moment it is there, and a judge that fails everybody is not asked any further.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from cluster.judge_cache import Record, VerdictCache
from sentinel.engine import ContextOverflow, Engine, EngineError, Message, Refusal, Request, Stop
from sentinel.errors import UserError
from sentinel.judge.prompt import SYSTEM
from sentinel.judge.verdict import read_verdict, unreadable

log = logging.getLogger(__name__)
READS = 3
"""Replies to one question that may be no digit."""
GIVE_UP = 10
"""Questions in a row that may fail for the server's sake before no more are asked."""
GRACE_SECONDS = 20.0
"""How long a stop waits for the replies in flight: they are paid for."""


@dataclass(frozen=True, slots=True)
class Question:
    """One content to be judged, and the episode that pays for it."""

    key: str
    shown: str
    payer: tuple[str, str, str, str]


@dataclass
class Asked:
    """What came of a batch: errors by content address, and why asking ended early, if it did."""

    errors: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None
    answered: int = 0
    cost_usd: float = 0.0


async def ask_all(
    engine: Engine,
    questions: Iterable[Question],
    cache: VerdictCache,
    label: str,
    *,
    max_tokens: int,
    concurrency: int,
    done: Callable[[str, bool], None] = lambda key, failed: None,
) -> Asked:
    """Ask every question; verdicts go into `cache`, the rest is in the returned `errors`.

    `done` is told the key of each question and whether it failed. Raises UserError where no
    question can succeed (a refused key), after the replies in flight have been kept.
    """
    found, left = Asked(), iter(questions)
    work = _Work(engine, cache, label, max_tokens, found, done)
    workers = [asyncio.create_task(work.through(left)) for _ in range(concurrency)]
    try:
        # Unlike `gather`, a cancelled `wait` leaves the workers at work.
        ready, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        for worker in ready:
            worker.result()
    except BaseException:
        work.ended = True
        await asyncio.wait(workers, timeout=GRACE_SECONDS)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    if found.stopped is not None:
        found.errors |= {question.key: found.stopped for question in left}
    return found


class _Work:
    """What the workers of one batch share."""

    def __init__(
        self,
        engine: Engine,
        cache: VerdictCache,
        label: str,
        max_tokens: int,
        found: Asked,
        done: Callable[[str, bool], None],
    ) -> None:
        self.engine, self.cache, self.label, self.max_tokens = engine, cache, label, max_tokens
        self.found, self.done = found, done
        self.ended = False
        self.in_a_row = 0

    async def through(self, questions: Iterator[Question]) -> None:
        """One worker: the next question until there is none or asking has ended."""
        while not self.ended:
            question = next(questions, None)
            if question is None:
                return
            try:
                await self.one(question)
            except Stop as stop:
                self.found.errors[question.key] = self.end(str(stop))
            except UserError:
                self.ended = True
                raise

    async def one(self, question: Question) -> None:
        """Ask until a reply is one digit; the verdict, or why there is none."""
        cost: float | None = None
        error = ""
        for attempt in range(READS):
            try:
                reply = await self.engine.generate(
                    Request(
                        question.key[:16],
                        None,
                        (Message("system", SYSTEM), Message("user", question.shown)),
                        max_tokens=self.max_tokens,
                        seed=attempt,
                    )
                )
            except EngineError as failure:
                error = str(failure)
                self.pay(failure.cost_usd)
                own = isinstance(failure, Refusal | ContextOverflow)
                self.in_a_row = self.in_a_row if own else self.in_a_row + 1
                break
            self.in_a_row = 0
            self.pay(reply.cost_usd)
            cost = reply.cost_usd if cost is None else cost + (reply.cost_usd or 0.0)
            verdict = read_verdict(reply.text)
            if verdict is not None:
                self.keep(question, verdict, reply.text, cost)
                return
            error = unreadable(reply.text, reply.finish_reason == "length")
        self.found.errors[question.key] = error
        self.done(question.key, True)
        if self.in_a_row >= GIVE_UP:
            self.end(f"{self.in_a_row} questions in a row failed, the last one with: {error}")

    def keep(self, question: Question, verdict: bool, reply: str, cost: float | None) -> None:
        """A verdict, for every run that shares the cache."""
        now = round(time.time(), 3)
        who = self.engine.revision
        self.cache.add(
            Record(question.key, self.label, verdict, reply, who, cost, question.payer, now)
        )
        self.found.answered += 1
        self.done(question.key, False)

    def pay(self, cost: float | None) -> None:
        """Add what a reply cost, where that is known."""
        self.found.cost_usd += cost or 0.0

    def end(self, why: str) -> str:
        """Ask no further question."""
        self.ended = True
        if self.found.stopped is None:
            self.found.stopped = why
            log.warning("judge %s: %s", self.label, why)
        return why
