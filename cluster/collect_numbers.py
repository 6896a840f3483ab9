"""The numbers of a collection under way: tokens per second, replicas busy, spend."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cluster.progress import Progress

if TYPE_CHECKING:
    from cluster.collect_actor import Team
    from cluster.collect_unit import Unit

WINDOW_SECONDS = 30.0
"""Over how long a rate is averaged."""


class Numbers:
    """Keeps `Progress.counts` of a collection; `read` every second or so."""

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self.progress, self._clock = progress, clock
        self._cached = progress.done
        self._seen: dict[int, int] = {}
        self._made = 0
        self._window: deque[tuple[float, int]] = deque([(clock(), 0)])

    def read(self, teams: Iterable[Team]) -> None:
        """Take the numbers of all teams as they are now."""
        teams = list(teams)
        units = [unit for team in teams for unit in team.units]
        for unit in units:
            self._made += self._new_tokens(unit)
        now = self._clock()
        self._window.append((now, self._made))
        while len(self._window) > 2 and now - self._window[0][0] > WINDOW_SECONDS:
            self._window.popleft()
        begun, before = self._window[0]
        seconds = now - begun
        counts = self.progress.counts
        counts["cached"] = self._cached
        counts["failed"] = self.progress.failed
        tallies = [tally for team in teams for tally in team.tallies]
        counts["generated_tokens"] = sum(tally.generated_tokens for tally in tallies)
        counts["tokens_per_second"] = round((self._made - before) / seconds, 1) if seconds else 0.0
        counts["replicas"] = len(units)
        counts["replicas_busy"] = sum(team.busy for team in teams)
        spent = [tally.cost_usd for tally in tallies if tally.cost_usd is not None]
        if spent:
            counts["spend_usd"] = round(sum(spent), 6)

    def _new_tokens(self, unit: Unit) -> int:
        """Tokens since the last reading; a unit counts anew for each plan and each life."""
        if unit.last is None:
            return 0
        now, before = unit.last.generated_tokens, self._seen.get(unit.number, 0)
        self._seen[unit.number] = now
        return now - before if now >= before else now
