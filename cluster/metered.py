"""What a replica knows of its engine at work: tokens in flight, tokens made, and whether it hangs.

Pure asyncio, no Ray: the gate also runs on a simulated clock.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sentinel.engine import Engine, Generation, Request


class TokenGate:
    """Admits episodes while the tokens in flight that the live ones declare stay under a limit.

    An episode declares its prompt so far and the tokens it may still generate, anew at each turn;
    it may then exceed the limit (it is never sent away half-way), and nobody is admitted until
    there is room again. A first prompt's length is known when the first episode has begun: until
    then it runs alone. An episode larger than the limit runs alone, too.

    Args:
        limit: tokens; None admits everybody.
        max_tokens: what a turn may generate.
    """

    def __init__(self, limit: int | None, max_tokens: int) -> None:
        self.limit, self.max_tokens = limit, max_tokens
        self.live: dict[str, int] = {}
        self.tickets = 0
        """Episodes that were admitted and have not begun."""
        self._first: int | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def tokens(self) -> int:
        """Tokens in flight: declared, and reserved for those admitted."""
        return sum(self.live.values()) + self.tickets * self._entry

    async def admit(self) -> None:
        """Wait until one more episode fits, and reserve its place."""
        if not self._waiting and self._fits():
            self.tickets += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place  # the ticket was counted by whoever let us in
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.spare()
            elif place in self._waiting:
                self._waiting.remove(place)
            raise

    def spare(self) -> None:
        """An admitted episode does not come."""
        self.tickets -= 1
        self._let_in()

    def begin(self, episode: str) -> None:
        """An episode begins, on a ticket where there is one."""
        self.tickets = max(0, self.tickets - 1)
        self.live[episode] = self._entry

    def declare(self, episode: str, prompt_tokens: int) -> None:
        """An episode's next request: so long a prompt, and as much as a turn may generate."""
        if episode not in self.live:
            return
        if self._first is None:
            self._first = prompt_tokens
        self.live[episode] = prompt_tokens + self.max_tokens
        self._let_in()

    def leave(self, episode: str) -> None:
        """An episode is over."""
        self.live.pop(episode, None)
        self._let_in()

    @property
    def _entry(self) -> int:
        return (self._first or 0) + self.max_tokens

    def _fits(self) -> bool:
        if self.limit is None or not (self.live or self.tickets):
            return True
        return self._first is not None and self.tokens + self._entry <= self.limit

    def _let_in(self) -> None:
        while self._waiting and self._fits():
            place = self._waiting.popleft()
            if not place.done():
                self.tickets += 1
                place.set_result(None)


@dataclass(frozen=True, slots=True)
class Pulse:
    """The state of a replica, as it tells the driver every few seconds."""

    requests: int
    """Requests that the engine has and has not answered."""
    episodes: int
    tokens_in_flight: int
    generated_tokens: int
    """Since the plan was opened; also of unfinished requests where the engine counts them."""
    stalled_seconds: float
    """Since the last token while a request waits; 0 for engines that do not count theirs."""


class Metered:
    """An engine with a gate and counters around it; otherwise the engine.

    An engine that counts its tokens as they are made (`progress`, a growing integer) is watched:
    one that has requests and makes none is said to be stalled.
    """

    def __init__(
        self, engine: Engine, gate: TokenGate, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.engine, self.gate = engine, gate
        self.name, self.revision = engine.name, engine.revision
        self.context_window = engine.context_window
        self.encoder: Any = getattr(engine, "encoder", None)
        self.watch: Any = getattr(engine, "watch", None)
        self.requests = self._finished_tokens = 0
        self._clock = clock
        self._base = self._seen = self._progress or 0
        self._since = clock()

    async def generate(self, request: Request) -> Generation:
        """The engine's answer. Raises what the engine raises."""
        if request.prompt_ids is not None:
            episode = request.request_id.rpartition("/")[0]
            self.gate.declare(episode, len(request.prompt_ids))
        if not self.requests:
            self._since = self._clock()
        self.requests += 1
        try:
            generation = await self.engine.generate(request)
        finally:
            self.requests -= 1
        self._finished_tokens += generation.generated_tokens
        self._since = self._clock()
        return generation

    async def close(self) -> None:
        """Close the engine."""
        await self.engine.close()

    def pulse(self) -> Pulse:
        """The state now."""
        progress = self._progress
        stalled = 0.0
        if progress is not None:
            if progress != self._seen:
                self._seen, self._since = progress, self._clock()
            if self.requests:
                stalled = self._clock() - self._since
        return Pulse(
            requests=self.requests,
            episodes=len(self.gate.live),
            tokens_in_flight=self.gate.tokens,
            generated_tokens=(
                self._finished_tokens if progress is None else max(0, progress - self._base)
            ),
            stalled_seconds=stalled,
        )

    @property
    def _progress(self) -> int | None:
        found = getattr(self.engine, "progress", None)
        return found if isinstance(found, int) else None
