"""What becomes of MIMIC-III: EHRSQL's rules, and what the open demo needs to be relaxed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sentinel.errors import UserError

VITALS: Mapping[int, str] = {
    677: "temperature c (calc)",
    834: "sao2",
    211: "heart rate",
    618: "respiratory rate",
    51: "arterial bp [systolic]",
    8368: "arterial bp [diastolic]",
    52: "arterial bp mean",
    762: "admit wt",
    920: "admit ht",
}
"""The nine chart items that EHRSQL keeps: itemid of CareVue → label."""
SAME_VITALS: Mapping[int, int] = {
    676: 677,  # temperature c
    223762: 677,  # temperature celsius
    646: 834,  # spo2
    220277: 834,  # o2 saturation pulseoxymetry
    220045: 211,  # heart rate
    220210: 618,  # respiratory rate
    220050: 51,  # arterial blood pressure systolic
    220051: 8368,  # arterial blood pressure diastolic
    220052: 52,  # arterial blood pressure mean
    226512: 762,  # admission weight (kg)
    226707: 920,  # height (inches)
}
"""The same measurement under another item → the item that EHRSQL keeps (relaxed only)."""
UNITS: Mapping[int, str] = {
    677: "deg. c",
    834: "%",
    211: "bpm",
    618: "bpm",
    51: "mmhg",
    8368: "mmhg",
    52: "mmhg",
    762: "kg",
    920: "inches",
}
"""Unit of each kept item where rows of another item stand in for it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How the database is made; `PUBLISHED` are the rules of EHRSQL, seed and all.

    `patients` form the cohort, `current_share` of them in hospital at the `clock`. Admissions are
    kept at ages above `min_age` and below `max_age` (None: any), and with a stay shorter than the
    95th percentile unless `long_stays`; ages beyond `oldest` are written as that (MIMIC-III writes
    300 for whoever is older than 89). Each patient's first admission moves to a year from
    `start_year` on (`span` years more; later ones likelier). `shuffle` exchanges values between
    patients. `vitals` maps chart items to those that are kept. `move_to_current` moves patients
    until enough of them are in hospital at the clock.
    """

    name: str
    patients: int = 1000
    current_share: float = 0.1
    min_age: int | None = 10
    max_age: int | None = 90
    oldest: int | None = None
    long_stays: bool = False
    shuffle: bool = True
    vitals: Mapping[int, int] = field(default_factory=lambda: {i: i for i in VITALS})
    move_to_current: bool = False
    clock: str = "2105-12-31 23:59:00"
    start_year: int = 2100
    span: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises UserError for a cohort that cannot be."""
        if self.patients < 1 or not 0 <= self.current_share <= 1:
            raise UserError(
                f"{self.patients} patients, {self.current_share} of them current",
                "ask for at least one patient and a share from 0 to 1",
            )


PUBLISHED = Rules("published")
RELAXED = Rules(
    "relaxed",
    max_age=None,
    min_age=None,
    oldest=90,
    long_stays=True,
    shuffle=False,
    vitals={i: i for i in VITALS} | dict(SAME_VITALS),
    move_to_current=True,
)
"""For the open demo of 100 patients: none is dropped, each keeps its values, and the vital signs
that its newer system wrote under other items are kept."""
