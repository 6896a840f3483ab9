"""The order of the draws: years, current patients, others, ICU units, prices, from one generator.

The published questions name patients by id, so the same CSVs must give the same patients. What is
expected here is drawn in the test, in the order of the data set's own script.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
from made_mimic import admission, write_mimic

from sentinel.benchmarks.ehrsql.prepare import PUBLISHED, build

N = 40
RULES = replace(PUBLISHED, long_stays=True, patients=10, current_share=0.2)
CLOCK = datetime(2105, 12, 31, 23, 59)


def stay(n: int) -> tuple[datetime, datetime]:
    """Patients 1, 4, 7, … come to the hospital on the last days of a year."""
    admitted = datetime(2110 + n % 5, 12, 28) if n % 3 == 1 else datetime(2110 + n % 5, 3, 1)
    return admitted, admitted + timedelta(days=9)


def test_patients_units_and_prices_are_those_of_one_generator(tmp_path):
    subjects = list(range(N, 0, -1))  # in the order of the file, which is not that of the ids
    rows = {
        "patients": [(n, "F", "2060-01-01 00:00:00", None) for n in subjects],
        "admissions": [admission(n, 100 + n, *map(str, stay(n))) for n in subjects],
        "icustays": [
            (n, 100 + n, 200 + n, f"F{n}", f"L{n}", n, 1000 + n, str(stay(n)[0]), None)
            for n in subjects
        ],
        "diagnoses_icd": [(n, 100 + n, "0123" if n % 2 else "v10") for n in subjects],
        "labevents": [(n, 100 + n, 50800, str(stay(n)[0]), 1, "mg") for n in subjects],
    }
    folder = write_mimic(tmp_path / "csv", rows)
    about = build(folder, tmp_path / "db.sqlite", RULES, report=lambda _: None)

    rng = np.random.default_rng(0)
    share = np.arange(1, 7) / 21
    shift = {
        n: timedelta(days=365 * (int(rng.choice(range(2100, 2106), p=share)) - stay(n)[0].year))
        for n in subjects
    }
    begun = [n for n in subjects if stay(n)[0] + shift[n] <= CLOCK]
    ongoing = [n for n in begun if stay(n)[1] + shift[n] > CLOCK]
    assert len(ongoing) >= 2
    current = rng.choice(np.array(ongoing), 2, replace=False).tolist()
    ended = [n for n in begun if n not in ongoing]
    cohort = {*current, *rng.choice(np.array(ended), 8, replace=False).tolist()}
    kept = [n for n in subjects if n in cohort]
    units = [[f"f{n}", f"l{n}", n, 1000 + n] for n in kept]
    for i, other in enumerate(rng.choice(len(kept), len(kept), replace=False).tolist()):
        units[i] = units[other]  # one after the other: some receive what was received
    means = rng.poisson(lam=10, size=4)
    prices = {code: round(rng.normal(loc=means[0], scale=1.0), 2) for code in ("0123", "v10")}
    test = round(rng.normal(loc=means[1], scale=1.0), 2)

    with closing(sqlite3.connect(tmp_path / "db.sqlite")) as db:
        found = db.execute(
            "select subject_id, admittime from admissions order by row_id"
        ).fetchall()
        assert found == [(n, str(stay(n)[0] + shift[n])) for n in kept]
        told = "select first_careunit, last_careunit, first_wardid, last_wardid from icustays"
        assert [list(r) for r in db.execute(f"{told} order by row_id")] == units
        codes = dict(
            db.execute(
                "select icd9_code, cost from diagnoses_icd d join cost c on c.event_id = d.row_id"
                " and c.event_type = 'diagnoses_icd'"
            ).fetchall()
        )
        assert codes == {code: prices[code] for code in codes}
        assert set(codes) == {"0123", "v10"}
        told = "select distinct cost from cost where event_type = 'labevents'"
        assert db.execute(told).fetchall() == [(test,)]
    assert about["current_patients"] == 2


def test_the_exchange_draws_as_the_authors_script_does():
    """`choice(n, n)` takes 16 bytes a row where their `choice(arange(n), n)` takes 24."""
    for n in (1, 2, 5, 100, 9_999, 10_001, 60_000):  # the generator changes its way at 10,000
        theirs = np.random.default_rng(0).choice(np.arange(n), n, replace=False)
        assert (np.random.default_rng(0).choice(n, n, replace=False) == theirs).all()
