"""How fast an API is asked: requests in flight that halve at a 429 and recover, and waits.

One layer of retries exists, the loop of `cluster.engines.openai`; the SDK's own is switched off.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime

Sleep = Callable[[float], Awaitable[None]]
Clock = Callable[[], float]
LONGEST_BACKOFF = 30.0


class Concurrency:
    """A limit on requests in flight: additive increase, multiplicative decrease.

    A 429 halves the limit, once for all requests that were sent before it; after as many successes
    as the limit it grows by one, up to `most`. A pause that the server asks for holds everybody.

    Args:
        most: the limit at the start, and the highest.
        clock: monotonic seconds.
        sleep: waits for seconds.
    """

    def __init__(
        self, most: int = 20, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        if most < 1:
            raise ValueError("there must be room for one request")
        self.most = self.limit = most
        self.in_flight = self.halvings = 0
        self._successes = 0
        self._clock, self._sleep = clock, sleep
        self._halved_at = float("-inf")
        self._not_before = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> float:
        """Wait for room and for the end of a pause; the time at which the request is sent."""
        if self.in_flight < self.limit and not self._waiting:
            self.in_flight += 1
        else:
            await self._queue()
        try:
            while (wait := self._not_before - self._clock()) > 0:
                await self._sleep(wait)
        except asyncio.CancelledError:
            self.leave()
            raise
        return self._clock()

    def leave(self) -> None:
        """A request is over, however it ended."""
        self.in_flight -= 1
        self._admit()

    def succeeded(self) -> None:
        """A request was answered."""
        self._successes += 1
        if self._successes >= self.limit and self.limit < self.most:
            self.limit, self._successes = self.limit + 1, 0
            self._admit()

    def slow_down(self, sent_at: float, pause: float = 0.0) -> None:
        """The server answered 429 to a request sent at that time, and may ask for a pause (s)."""
        self.pause(pause)
        if sent_at > self._halved_at:  # else it was sent under the limit that is halved already
            self.limit, self._successes = max(1, self.limit // 2), 0
            self._halved_at = self._clock()
            self.halvings += 1

    def pause(self, seconds: float) -> None:
        """Send nothing for so long."""
        self._not_before = max(self._not_before, self._clock() + seconds)

    async def _queue(self) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place  # `in_flight` was counted by whoever let us in
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()
            else:
                self._waiting.remove(place)
            raise

    def _admit(self) -> None:
        while self._waiting and self.in_flight < self.limit:
            place = self._waiting.popleft()
            if not place.done():
                self.in_flight += 1
                place.set_result(None)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that a reply asks to wait; None where it says nothing that can be read.

    Reads `retry-after-ms`, and `Retry-After` as seconds or as an HTTP date (`now` is Unix time).

    >>> retry_after({"retry-after": "1.5"}, now=0.0)
    1.5
    >>> retry_after({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, now=4.0)
    6.0
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) / unit
        except ValueError:
            seconds = _until(text, now)
        if 0 <= seconds < float("inf"):
            return seconds
    return None


def _until(date: str, now: float) -> float:
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now)
    except (ValueError, OverflowError):
        return -1.0


def backoff(failures: int, seed: str, first: float) -> float:
    """Seconds before another try after so many failures: doubling, up to half of it left out.

    >>> [0.5 <= backoff(k, "x", 1.0) / 2 ** (k - 1) <= 1.0 for k in (1, 2, 3)]
    [True, True, True]
    """
    longest = min(LONGEST_BACKOFF, first * 2 ** min(failures - 1, 16))
    return longest * random.Random(f"{seed}/{failures}").uniform(0.5, 1.0)
