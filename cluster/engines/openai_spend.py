"""What an API charges: prices, a journal of every billed reply, and a budget shared by a run.

Every billed reply is a line of a file in the run's spend folder, whether its episode is finished,
lost or dropped. So what was spent is known on resume, and by everybody who shares the folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.journal import Journal
from sentinel.engine import Stop

REREAD_SECONDS = 1.0
"""How old what others spent may be."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    prompt: float
    cached: float
    generated: float

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None) -> Price | None:
        """The price in an agent's config (`prompt`, `generated`, `cached`: as prompt if absent)."""
        if settings is None:
            return None
        cached = settings.get("cached")
        prompt = float(settings["prompt"])
        return cls(
            prompt, prompt if cached is None else float(cached), float(settings["generated"])
        )

    def cost(self, prompt: int, cached: int, generated: int) -> float:
        """Dollars for so many tokens; `cached` of the `prompt` tokens are charged as cached.

        >>> Price(2.5, 1.25, 10.0).cost(1_000_000, 400_000, 100_000)
        3.0
        """
        whole = (prompt - cached) * self.prompt + cached * self.cached + generated * self.generated
        return whole / 1e6


class SpendReader:
    """Adds up the lines of a spend folder, reading each only once."""

    def __init__(self, folder: Path, without: Path | None = None) -> None:
        self.folder, self.without = folder, without
        self.by_agent: Counter[str] = Counter()
        self._read: Counter[Path] = Counter()

    def total(self) -> float:
        """Dollars spent so far."""
        for path in sorted(self.folder.glob("*.jsonl")):
            if path != self.without:
                self._more(path)
        return float(sum(self.by_agent.values()))

    def _more(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._read[path])
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]  # a last line without its end is still being written
        self._read[path] += len(whole)
        for line in whole.splitlines():
            try:
                item = json.loads(line)
                self.by_agent[str(item["agent"])] += float(item["usd"])  # type: ignore[assignment]
            except (ValueError, KeyError, TypeError):
                continue  # a line cut by a dead process and continued by nobody


class Spend:
    """The budget of a run as one agent sees it: what is spent, and what is in flight.

    A request is sent only if the budget also covers it at its ceiling, beside those in flight. Room
    comes back when a reply cost less. So the budget is kept, but for what other processes send
    within a second of the last look, and for attempts whose cost the server never told.

    Args:
        agent: the agent's name.
        limit: dollars that all agents of the run may spend; None: any.
        folder: where billed replies are journalled; None: nowhere.
    """

    def __init__(self, agent: str, limit: float | None = None, folder: Path | None = None) -> None:
        self.agent, self.limit = agent, limit
        self.own = 0.0
        self._held, self._holders = 0.0, 0
        self._waiting: list[asyncio.Future[None]] = []
        self._journal: Journal | None = None
        self._others: SpendReader | None = None
        self._others_at = float("-inf")
        self._others_total = 0.0
        if folder is not None:
            self._journal = Journal(folder / f"{time.time_ns():020d}-{os.getpid()}.jsonl")
            self._others = SpendReader(folder, without=self._journal.path)

    @property
    def spent(self) -> float:
        """Dollars of the whole run, earlier lives of it included."""
        if self._others is not None and time.monotonic() - self._others_at > REREAD_SECONDS:
            self._others_total, self._others_at = self._others.total(), time.monotonic()
        return self.own + self._others_total

    async def reserve(self, ceiling: float, *, begins: bool = False) -> None:
        """Hold dollars for a request until `settle`. Raises Stop where the budget has no room.

        A request that `begins` an episode is refused rather than made to wait: what is left belongs
        to the episodes in flight.
        """
        while self.limit is not None and self.spent + self._held + ceiling > self.limit:
            if begins or not self._holders:
                raise Stop(
                    f"agent {self.agent}: the budget of ${self.limit:,.2f} leaves no room for "
                    f"another request (${self.spent:,.4f} spent, ${self._held + ceiling:,.4f} in "
                    "flight or asked for); raise collect.budget_usd and run again"
                )
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            await place
        self._held += ceiling
        self._holders += 1

    def settle(self, ceiling: float, cost: float | None, request_id: str) -> None:
        """A request is over and cost so much, where the server told."""
        self._holders -= 1
        self._held = self._held - ceiling if self._holders else 0.0
        if cost:
            self.own += cost
            if self._journal is not None:
                line = {"agent": self.agent, "request": request_id, "usd": cost}
                self._journal.append(json.dumps(line))
        waiting, self._waiting = self._waiting, []
        for place in waiting:
            if not place.done():
                place.set_result(None)

    def close(self) -> None:
        """Sync the journal."""
        if self._journal is not None:
            self._journal.close()
