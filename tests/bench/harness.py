"""How every bench measures, prints and judges.

Both sides run in one process, in alternating order (A B B A …), and each pair gives one ratio. A
bar is missed only when the whole range of the ratios lies on its wrong side, so that one disturbed
pair decides nothing. A baseline that is itself out of range makes its comparison void.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Measured(NamedTuple):
    """The median of the pairs and their range."""

    median: float
    low: float
    high: float


class BaselineOutOfRange(Exception):
    """The plain version is not as slow or as fast as the figure that the bar was set against."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a bench: `name value unit`, with the range in brackets.

    `at_least` or `at_most` is the bar; neither means that the figure is only printed.
    """

    name: str
    value: Measured
    unit: str = "x"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def missed(self) -> bool:
        """Does the whole range lie on the wrong side of the bar?"""
        below = self.at_least is not None and self.value.high < self.at_least
        above = self.at_most is not None and self.value.low > self.at_most
        return below or above

    def __str__(self) -> str:
        median, low, high = (f"{v:.4g}" for v in self.value)
        text = f"{self.name} {median} {self.unit} [{low} .. {high}]"
        if self.at_least is not None:
            text += f" bar >= {self.at_least:g}"
        if self.at_most is not None:
            text += f" bar <= {self.at_most:g}"
        return text


def seconds(run: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def pairs_of(
    baseline: Callable[[], object], fast: Callable[[], object], pairs: int = 7
) -> list[tuple[float, float]]:
    """Seconds of (baseline, fast) for each pair, measured in the order A B B A A B …"""
    measured = []
    for i in range(pairs):
        if i % 2 == 0:
            a = seconds(baseline)
            b = seconds(fast)
        else:
            b = seconds(fast)
            a = seconds(baseline)
        measured.append((a, b))
    return measured


def summary(values: Iterable[float]) -> Measured:
    """Median and range."""
    ordered = sorted(values)
    return Measured(statistics.median(ordered), ordered[0], ordered[-1])


def paired(baseline: Callable[[], object], fast: Callable[[], object], pairs: int = 7) -> Measured:
    """How many times as fast: seconds of `baseline` over seconds of `fast`, per pair.

    Both are called once before, unmeasured, so that caches and imports are alike.
    """
    baseline()
    fast()
    return summary(a / b for a, b in pairs_of(baseline, fast, pairs))


def check_baseline(name: str, value: float, given: float, factor: float = 2.0) -> None:
    """Raise BaselineOutOfRange unless `value` is within `factor` of the figure it should have."""
    if not given / factor <= value <= given * factor:
        raise BaselineOutOfRange(f"{name} is {value:.4g}, the bar was set against {given:.4g}")


class InnerClock:
    """Adds up the time spent inside functions, for overheads too small for an A/B.

    >>> clock = InnerClock()
    >>> clock.wrap(len)("abc")
    3
    >>> clock.spent_ns > 0
    True
    """

    def __init__(self) -> None:
        self.spent_ns = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent_ns += time.perf_counter_ns() - start

        return timed


def main(
    description: str | None,
    bench: Callable[..., Iterable[Line]],
    devices: Sequence[str] = (),
) -> int:
    """The command line of a bench; `bench(tiny)` yields its lines. Returns the exit code.

    --tiny proves on a small input that the bench works and judges nothing; --check fails on a
    missed bar. A baseline out of range fails either way, but for --tiny. A bench that names the
    `devices` it runs on takes --device (default: the first) and is called `bench(tiny, device)`.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--tiny", action="store_true", help="a small input, for correctness only")
    parser.add_argument("--check", action="store_true", help="fail when a bar is missed")
    if devices:
        parser.add_argument("--device", choices=devices, default=devices[0])
    args = parser.parse_args()
    chosen = (args.device,) if devices else ()
    missed = False
    try:
        for line in bench(args.tiny, *chosen):
            print(line, flush=True)
            missed |= line.missed
    except BaselineOutOfRange as error:
        print(f"baseline out of range: {error}", file=sys.stderr)
        return 0 if args.tiny else 1
    return int(args.check and not args.tiny and missed)
