"""Who is in the database, and by how much each patient's time moves.

Every draw is made from one generator in the order of the authors' own script, so that the same
CSVs give the same patients in the same years: the published questions name patients by their id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.ehrsql.prepare.rules import Rules

_FORM = "%Y-%m-%d %H:%M:%S"
_YEAR_MINUTES = 365 * 24 * 60
"""A year of the shift: leap days are not made up for."""


@dataclass(frozen=True, slots=True)
class Patient:
    """A row of PATIENTS."""

    subject: int
    gender: str | None
    dob: datetime
    dod: datetime | None


@dataclass(frozen=True, slots=True)
class Admission:
    """A row of ADMISSIONS in the times of the source; `rest` are its descriptive columns."""

    subject: int
    hadm: int
    admitted: datetime
    discharged: datetime
    age: int
    rest: tuple[Any, ...]

    @property
    def days(self) -> int:
        """Whole days in hospital."""
        return (self.discharged - self.admitted).days


@dataclass(frozen=True, slots=True)
class Cohort:
    """The chosen patients and their admissions, in the source's order and times.

    `shift` is in minutes, of every patient with a kept admission; `counts` says what the rules
    left.
    """

    patients: Sequence[Patient]
    admissions: Sequence[Admission]
    shift: dict[int, int]
    counts: dict[str, int]


def at(text: str) -> datetime:
    """A time of the CSVs. Raises DataError."""
    try:
        return datetime.strptime(text, _FORM)
    except ValueError as error:
        raise DataError(
            f"{text!r} is no time (YYYY-MM-DD HH:MM:SS)", "get the CSV files again"
        ) from error


def choose(
    patients: Sequence[Patient],
    admissions: Sequence[Admission],
    rules: Rules,
    rng: np.random.Generator,
) -> Cohort:
    """The cohort: admissions by age and stay, a year for each patient, then the patients.

    Raises DataError where nothing is left.
    """
    of_age = [a for a in admissions if _of_age(a, rules)]
    kept = of_age if rules.long_stays else _short_stays(of_age)
    if not kept:
        raise DataError("no admission is left after the filters of age and stay", "use --relaxed")
    shift = _years(kept, rules, rng)
    clock = at(rules.clock)
    if rules.move_to_current:
        _move_to_current(kept, shift, rules, rng)
    now = [a for a in kept if a.admitted + timedelta(minutes=shift[a.subject]) <= clock]
    chosen, current = _patients(now, shift, rules, rng)
    counts = {
        "admissions_in": len(admissions),
        "after_age": len(of_age),
        "after_stay": len(kept),
        "patients": len(chosen),
        "current_patients": current,
    }
    return Cohort(
        [p for p in patients if p.subject in chosen],
        [a for a in now if a.subject in chosen],
        shift,
        counts,
    )


def _of_age(admission: Admission, rules: Rules) -> bool:
    return (rules.min_age is None or admission.age > rules.min_age) and (
        rules.max_age is None or admission.age < rules.max_age
    )


def _short_stays(admissions: Sequence[Admission]) -> list[Admission]:
    if not admissions:
        return []
    limit = np.percentile([a.days for a in admissions], q=95)
    return [a for a in admissions if a.days < limit]


def _years(
    admissions: Sequence[Admission], rules: Rules, rng: np.random.Generator
) -> dict[int, int]:
    """Minutes by which each patient moves: the first kept admission falls into the drawn year."""
    first: dict[int, datetime] = {}
    for a in admissions:  # in the order of the file, which is the order of the draws
        first[a.subject] = min(first.get(a.subject, a.admitted), a.admitted)
    weights = np.arange(1, rules.span + 2)
    years = range(rules.start_year, rules.start_year + rules.span + 1)
    share = weights / sum(weights)
    return {
        subject: (int(rng.choice(years, p=share)) - time.year) * _YEAR_MINUTES
        for subject, time in first.items()
    }


def _ongoing(a: Admission, shift: dict[int, int], clock: datetime) -> bool:
    move = timedelta(minutes=shift[a.subject])
    return a.admitted + move <= clock < a.discharged + move


def _move_to_current(
    admissions: Sequence[Admission],
    shift: dict[int, int],
    rules: Rules,
    rng: np.random.Generator,
) -> None:
    """Move patients so that the clock falls into their last stay, until enough are in hospital."""
    clock = at(rules.clock)
    current = {a.subject for a in admissions if _ongoing(a, shift, clock)}
    others = list(dict.fromkeys(a.subject for a in admissions if a.subject not in current))
    everyone = len(current) + len(others)
    lacking = int(min(rules.patients, everyone) * rules.current_share) - len(current)
    for i in rng.permutation(len(others))[: max(lacking, 0)]:
        last = max((a for a in admissions if a.subject == others[i]), key=lambda a: a.admitted)
        stay = (last.discharged - last.admitted) / timedelta(minutes=1)
        into = int(stay * rng.uniform(0.2, 0.8))
        shift[others[i]] = int((clock - last.admitted) / timedelta(minutes=1)) - into


def _patients(
    admissions: Sequence[Admission],
    shift: dict[int, int],
    rules: Rules,
    rng: np.random.Generator,
) -> tuple[set[int], int]:
    """The drawn patients, and how many of them were drawn as current."""
    clock = at(rules.clock)
    wanted = int(rules.patients * rules.current_share)
    ongoing = [a.subject for a in admissions if _ongoing(a, shift, clock)]
    current = _draw(ongoing, wanted, rng)
    taken = set(current)
    ended = [
        a.subject for a in admissions if a.subject not in taken and not _ongoing(a, shift, clock)
    ]
    rest = _draw(ended, rules.patients - wanted, rng)
    return taken | set(rest), len(current)


def _draw(subjects: Sequence[int], n: int, rng: np.random.Generator) -> list[int]:
    """n different ones; all, without a draw, where there are fewer."""
    distinct = list(dict.fromkeys(subjects))
    if n > len(distinct):
        return distinct
    return [int(s) for s in rng.choice(np.array(distinct, dtype=np.int64), n, replace=False)]
