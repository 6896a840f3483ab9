"""`prepare`: every rule on tiny CSVs, bad input, bounded memory, all or nothing, the open demo."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from made_mimic import admission, write_mimic

from jobs.__main__ import main
from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.ehrsql.prepare import PUBLISHED, RELAXED, Rules, build

DATA = os.environ.get("SENTINEL_TEST_DATA")
ROOT = Path(__file__).resolve().parents[5]
PLAIN = replace(RELAXED, move_to_current=False)
YEAR = 365 * 24 * 60
PATIENTS = [
    (1, "F", "2050-03-01 00:00:00", None),
    (2, " M ", "2060-01-01 00:00:00", "2100-05-01 00:00:00"),
    (3, "F", "2070-01-01 00:00:00", None),
]
ADMISSIONS = [
    admission(1, 11, "2099-02-01 10:00:00", "2099-02-05 09:00:00"),
    admission(2, 12, "2100-04-01 08:00:00", "2100-04-09 08:00:00"),
    admission(3, 13, "2110-06-01 00:00:00", "2110-06-02 00:00:00"),
]
PERSON = {"patients": PATIENTS, "admissions": ADMISSIONS}


def made(tmp_path: Path, rows: dict[str, Any], rules: Rules = PLAIN, **packed: str) -> Any:
    """The database of some CSVs, as a connection."""
    folder = write_mimic(tmp_path / "csv", {**PERSON, **rows}, packed)
    build(folder, tmp_path / "made.sqlite", rules, report=lambda _: None)
    return sqlite3.connect(tmp_path / "made.sqlite")


def years(n: int, rules: Rules = PLAIN) -> list[int]:
    """What the generator of the rules draws first: one year per patient, later ones likelier."""
    rng = np.random.default_rng(rules.seed)
    share = np.arange(1, 7) / 21
    return [int(rng.choice(range(2100, 2106), p=share)) for _ in range(n)]


def test_text_is_lower_case_without_blanks_and_codes_keep_their_zeros(tmp_path):
    with closing(made(tmp_path, {"diagnoses_icd": [(1, 11, "0123")]})) as db:
        assert db.execute("select gender from patients where subject_id = 2").fetchone() == ("m",)
        location = "select distinct discharge_location from admissions"
        assert ("home",) in db.execute(location).fetchall()
        codes = db.execute("select icd9_code, typeof(icd9_code) from d_icd_procedures").fetchall()
        assert codes == [("0040", "text"), ("040", "text")]
        assert db.execute("select icd9_code from diagnoses_icd").fetchall() == [("0123",)]
        items = db.execute("select label from d_items where itemid = 99").fetchall()
        assert items == []  # linked to a table that EHRSQL does not have


def test_the_first_admission_moves_to_the_drawn_year_by_years_of_365_days(tmp_path):
    with closing(made(tmp_path, {})) as db:
        found = dict(db.execute("select subject_id, admittime from admissions").fetchall())
    for (subject, when, year), drawn in zip(
        [(1, "2099-02-01 10:00:00", 2099), (2, "2100-04-01 08:00:00", 2100),
         (3, "2110-06-01 00:00:00", 2110)],
        years(3),
        strict=True,
    ):  # fmt: skip
        days = (drawn - year) * 365
        with closing(sqlite3.connect(":memory:")) as clock:
            (shifted,) = clock.execute("select datetime(?, ?)", (when, f"{days} days")).fetchone()
        assert found[subject] == shifted


def test_ages_of_ten_and_ninety_are_left_out_unless_relaxed(tmp_path):
    patients = [
        (n, "F", f"{2100 - age}-01-01 00:00:00", None)
        for n, age in enumerate((10, 11, 89, 90, 40), 1)
    ]
    stays = [
        admission(n, 10 + n, "2100-06-01 00:00:00", f"2100-06-0{n}  00:00:00".replace("  ", " "))
        for n in range(1, 6)
    ]
    rows = {"patients": patients, "admissions": stays}
    no_stay_filter = replace(PUBLISHED, long_stays=True)
    with closing(made(tmp_path, rows, no_stay_filter)) as db:
        kept = db.execute("select subject_id, age from admissions order by 1").fetchall()
    assert kept == [(2, 11), (3, 89), (5, 40)]
    with closing(made(tmp_path / "relaxed", rows)) as db:
        ages = [a for (a,) in db.execute("select age from admissions order by subject_id")]
    assert ages == [10, 11, 89, 90, 40]
    old = {**rows, "patients": [(n, "F", "1800-01-01 00:00:00", None) for n in range(1, 6)]}
    with closing(made(tmp_path / "old", old)) as db:
        assert db.execute("select distinct age from admissions").fetchall() == [(90,)]


def test_the_longest_twentieth_of_stays_is_left_out_unless_relaxed(tmp_path):
    patients = [(n, "F", "2050-01-01 00:00:00", None) for n in range(1, 41)]
    stays = [
        admission(
            n, 100 + n, "2100-01-01 00:00:00", f"2100-{1 + n // 28:02d}-{1 + n % 28:02d} 00:00:00"
        )
        for n in range(1, 41)
    ]
    folder = write_mimic(tmp_path / "csv", {"patients": patients, "admissions": stays})
    about = build(folder, tmp_path / "a.sqlite", PUBLISHED, report=lambda _: None)
    days = [(n // 28) * 31 + n % 28 for n in range(1, 41)]
    assert about["after_stay"] == sum(d < np.percentile(days, 95) for d in days) == 38
    assert build(folder, tmp_path / "b.sqlite", PLAIN, report=lambda _: None)["after_stay"] == 40


def test_what_lies_after_the_clock_has_not_happened(tmp_path):
    year = years(1)[0]  # patient 1 comes first
    clock = f"{year}-02-03 12:00:00"
    rules = replace(PLAIN, clock=clock, patients=3, current_share=0.34)
    rows = {
        "patients": [(1, "F", "2050-03-01 00:00:00", "2099-03-01 00:00:00")],
        "admissions": [
            ADMISSIONS[0],
            admission(1, 14, "2099-02-20 00:00:00", "2099-02-21 00:00:00"),
        ],
        "labevents": [
            (1, 11, 50800, "2099-02-02 00:00:00", 5, "mg"),
            (1, 11, 50800, "2099-02-04 00:00:00", 6, "mg"),
        ],
        "prescriptions": [
            (1, 11, "2099-02-02 00:00:00", "2099-02-05 00:00:00", "A", "1", "MG", "PO")
        ],
        "diagnoses_icd": [(1, 11, "0123")],
        "procedures_icd": [(1, 11, "0040")],
    }
    with closing(made(tmp_path, rows, rules)) as db:
        assert db.execute("select dod from patients").fetchone() == (None,)
        told = db.execute("select hadm_id, dischtime, discharge_location from admissions")
        assert told.fetchall() == [(11, None, None)]  # the second stay begins later
        assert db.execute("select valuenum from labevents").fetchall() == [(5.0,)]
        assert db.execute("select enddate from prescriptions").fetchone() == (None,)
        assert db.execute("select charttime from diagnoses_icd").fetchone()[0][:4] == str(year)
        assert db.execute("select count(*) from procedures_icd").fetchone() == (0,)  # at discharge


def test_events_are_kept_as_published(tmp_path):
    labs = [
        (1, 11, 50800, "2099-02-02 00:00:00", 5, "mg/dL"),
        (1, None, 50800, "2099-02-02 00:00:00", 5, "mg/dL"),  # of no admission
        (1, 11, 50800, "2099-02-02 00:00:00", None, "mg/dL"),
        (1, 11, 50800, "2099-02-02 00:00:00", 5, None),
        (1, 11, 59999, "2099-02-02 00:00:00", 5, "mg/dL"),  # an unknown test
    ]
    day = ("2099-02-01 00:00:00", "2099-02-03 00:00:00")
    drugs = [
        (1, 11, *day, "Aspirin", "1,000", "MG", "PO"),
        (1, 11, *day, "Aspirin", "0.5", "MG", "PO"),  # no whole number
        (1, 11, *day, "Aspirin", "1-2", "MG", "PO"),
        (1, 11, *day, "Aspirin", "20", "TAB", "PO"),  # not the drug's usual unit
        (1, 11, *day, "Aspirin", "20", "MG", "IV"),
        (1, 11, *day, "Water", "2", "ML", "PO"),  # as frequent as the next: the first met stays
        (1, 11, *day, "Water", "3", "L", "PO"),
        (1, 11, *day, "Salt", "3", "G", None),
    ]
    chart = [
        (1, 11, 21, 211, "2099-02-02 00:00:00", 80, "bpm"),
        (1, 11, None, 211, "2099-02-02 00:00:00", 80, "bpm"),
        (1, 11, 21, 5555, "2099-02-02 00:00:00", 80, "bpm"),
        (1, 11, 21, 220045, "2099-02-02 01:00:00", 90, None),  # the newer system's heart rate
    ]
    fluids = [
        (1, 11, 21, "2099-02-02 00:00:00", 30, 100, "ml"),
        (1, 11, 21, "2099-02-02 00:00:00", 30, 100, "mg"),
    ]
    cultures = [(1, 11, "2099-02-02 00:00:00", None, "BLOOD", None)]
    rows = {
        "labevents": labs,
        "prescriptions": drugs,
        "chartevents": chart,
        "inputevents_cv": fluids,
        "outputevents": [(1, 11, 21, "2099-02-02 00:00:00", 40, 50, "ML")],
        "microbiologyevents": cultures,
    }
    with closing(made(tmp_path, rows)) as db:
        assert db.execute("select valuenum, valueuom from labevents").fetchall() == [(5.0, "mg/dl")]
        told = "select drug, dose_val_rx, dose_unit_rx, route from prescriptions order by row_id"
        assert db.execute(told).fetchall() == [
            ("aspirin", "1000.0", "mg", "po"),
            ("aspirin", "20.0", "mg", "iv"),
            ("water", "2.0", "ml", "po"),
        ]
        told = "select itemid, valuenum, valueuom from chartevents order by row_id"
        assert db.execute(told).fetchall() == [(211, 80.0, "bpm"), (211, 90.0, "bpm")]
        assert db.execute("select amount from inputevents_cv").fetchall() == [(100.0,)]
        assert db.execute("select value from outputevents").fetchall() == [(50.0,)]
        (when,) = db.execute("select charttime from microbiologyevents").fetchone()
        assert when.endswith("-02-02 00:00:00")  # the date, where there is no time
    with closing(made(tmp_path / "strict", rows, PUBLISHED_SMALL)) as db:
        assert db.execute("select count(*) from chartevents").fetchone() == (1,)


PUBLISHED_SMALL = replace(PUBLISHED, long_stays=True, current_share=0.0)


def test_values_are_exchanged_by_one_permutation_of_all_rows(tmp_path):
    labs = [
        (1 + n % 3, 11 + n % 3, 50800 + n % 2, "2100-04-02 00:00:00", n, f"u{n}") for n in range(12)
    ]
    labs = [
        (s, h, i, {11: "2099", 12: "2100", 13: "2110"}[h] + "-06-01 00:00:00", n, u)
        for s, h, i, _, n, u in labs
    ]
    stays = [
        admission(n, 10 + n, f"{y}-01-01 00:00:00", f"{y}-12-01 00:00:00")
        for n, y in ((1, 2099), (2, 2100), (3, 2110))
    ]
    rules = replace(PUBLISHED_SMALL, patients=2)
    with closing(made(tmp_path, {"labevents": labs, "admissions": stays}, rules)) as db:
        chosen = {s for (s,) in db.execute("select subject_id from patients")}
        found = db.execute(
            "select subject_id, itemid, valuenum, valueuom from labevents order by row_id"
        ).fetchall()
    assert len(chosen) == 2
    order = np.random.default_rng(0).choice(np.arange(12), 12, replace=False)
    expected = [
        (labs[i][0], labs[order[i]][2], float(labs[order[i]][4]), labs[order[i]][5])
        for i in range(12)
        if labs[i][0] in chosen
    ]
    assert found == expected
    assert any(row[2] not in {r[4] for r in labs if r[0] == row[0]} for row in found)


def test_units_of_icu_stays_are_exchanged_and_transfers_follow(tmp_path):
    icu = [(n, 10 + n, 20 + n, f"U{n}", f"U{n}", n, n, f"{y}-02-01 11:00:00", None)
           for n, y in ((1, 2099), (2, 2100), (3, 2110))]  # fmt: skip
    moves = [(n, 10 + n, 20 + n, "admit", f"U{n}", n, f"{y}-02-01 11:00:00", None)
             for n, y in ((1, 2099), (2, 2100), (3, 2110))]  # fmt: skip
    with closing(made(tmp_path, {"icustays": icu, "transfers": moves}, PUBLISHED_SMALL)) as db:
        told = "select icustay_id, first_careunit, first_wardid from icustays order by 1"
        units = db.execute(told).fetchall()
        told = "select icustay_id, careunit, wardid from transfers order by 1"
        assert db.execute(told).fetchall() == units
    with closing(made(tmp_path / "plain", {"icustays": icu, "transfers": moves})) as db:
        told = "select icustay_id, first_careunit, first_wardid from icustays order by 1"
        assert db.execute(told).fetchall() == [(20 + n, f"u{n}", n) for n in (1, 2, 3)]


def test_a_price_belongs_to_a_thing_and_is_charged_for_each_of_its_events(tmp_path):
    rows = {
        "diagnoses_icd": [(1, 11, "0123"), (2, 12, "0123"), (3, 13, "v10")],
        "labevents": [(1, 11, 50800, "2099-02-02 00:00:00", 5, "mg")],
    }
    with closing(made(tmp_path, rows)) as db:
        told = (
            "select event_type, event_id, cost from cost where event_type = 'diagnoses_icd'"
            " order by event_id"
        )
        prices = [c for *_, c in db.execute(told).fetchall()]
        assert prices[0] == prices[1] != prices[2]
        assert db.execute("select count(*) from cost").fetchone() == (4,)
        joined = db.execute(
            "select count(*) from cost join diagnoses_icd d on cost.event_id = d.row_id"
            " and cost.hadm_id = d.hadm_id and cost.chargetime = d.charttime"
            " where event_type = 'diagnoses_icd'"
        )
        assert joined.fetchone() == (3,)


def test_a_tenth_of_the_cohort_is_in_hospital(tmp_path):
    patients = [(n, "F", "2050-01-01 00:00:00", None) for n in range(1, 61)]
    stays = [
        admission(n, 100 + n, "2099-12-01 00:00:00", "2099-12-31 12:00:00") if n > 30
        else admission(n, 100 + n, "2099-12-30 00:00:00", "2100-01-05 00:00:00")
        for n in range(1, 61)
    ]  # fmt: skip
    folder = write_mimic(tmp_path / "csv", {"patients": patients, "admissions": stays})
    rules = replace(PUBLISHED_SMALL, patients=20, current_share=0.1)
    about = build(folder, tmp_path / "a.sqlite", rules, report=lambda _: None)
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as db:
        without = "select count(distinct subject_id) from admissions where dischtime is null"
        assert db.execute("select count(*) from patients").fetchone() == (20,)
        assert db.execute(without).fetchone() == (about["current_patients"],) == (2,)
    moved = build(
        folder, tmp_path / "b.sqlite", replace(RELAXED, seed=3, patients=60), report=lambda _: None
    )
    assert moved["current_patients"] >= 6  # moved, where too few are there by chance


def test_the_file_is_described_and_the_same_again(tmp_path):
    folder = write_mimic(tmp_path / "csv", PERSON, {"admissions": ".gz", "patients": ".xz"})
    for name in ("a", "b"):
        build(folder, tmp_path / name / "made.sqlite", PLAIN, report=lambda _: None)
    about = json.loads((tmp_path / "a" / "made.sqlite.json").read_text())
    digest = hashlib.sha256((tmp_path / "a" / "made.sqlite").read_bytes()).hexdigest()
    assert about["sha256"] == digest
    again = json.loads((tmp_path / "b" / "made.sqlite.json").read_text())
    assert again["sha256"] == digest  # packed or not, on any day
    assert about["rules"]["name"] == "relaxed"
    assert about["rows"]["patients"] == 3
    assert len(about["rows"]) == 17


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("remove", r"lacks labevents\.csv"),
        ("column", r"has no column valueuom"),
        ("twice", "lies there twice"),
        ("cut", "cannot be read"),
        ("number", r"value cannot be read|no number"),
        ("time", "is no time"),
        ("stranger", "speaks of patient 9"),
    ],
)
def test_bad_input_is_named_and_leaves_nothing(tmp_path, change, says):
    rows = dict(PERSON)
    if change == "number":
        rows["labevents"] = [(1, 11, "many", "2099-02-02 00:00:00", 5, "mg")]
    if change == "time":
        rows["admissions"] = [admission(1, 11, "1 May", "2099-02-05 09:00:00")]
    if change == "stranger":
        rows["admissions"] = [admission(9, 11, "2099-02-01 10:00:00", "2099-02-05 09:00:00")]
    folder = write_mimic(tmp_path / "csv", rows, {"labevents": ".xz" if change == "cut" else ""})
    labs = folder / f"LABEVENTS.csv{'.xz' if change == 'cut' else ''}"
    if change == "remove":
        labs.unlink()
    if change == "column":
        labs.write_text(labs.read_text().replace("VALUEUOM", "UNIT"))
    if change == "twice":
        (folder / "labevents.csv.gz").write_bytes(b"")
    if change == "cut":
        labs.write_bytes(labs.read_bytes()[:-8])
    out = tmp_path / "made" / "db.sqlite"
    with pytest.raises(DataError, match=says):
        build(folder, out, PLAIN, report=lambda _: None)
    assert list(tmp_path.glob("made/*")) == []
    assert list(tmp_path.glob("made/.*")) == []


def test_an_interrupted_build_leaves_no_database_and_one_that_exists_is_kept(tmp_path, capsys):
    folder = write_mimic(tmp_path / "csv", PERSON)
    out = tmp_path / "db.sqlite"

    def interrupt(text: str) -> None:
        if text.startswith("labevents"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(folder, out, PLAIN, report=interrupt)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["csv"]
    command = ["prepare", "ehrsql", "--csv", str(folder), "--out", str(out), "--relaxed"]
    assert main(command) == 0
    told = capsys.readouterr()
    assert "17 tables" in told.out
    assert "labevents: 0 rows stored" in told.err
    before = out.read_bytes()
    assert main(command) == 2
    assert "exists; remove it" in capsys.readouterr().err
    assert out.read_bytes() == before


@pytest.mark.slow
def test_memory_does_not_follow_the_size_of_the_files(tmp_path):
    folder = write_mimic(tmp_path / "csv", PERSON)
    chart = folder / "CHARTEVENTS.csv"
    row = "{},1,11,21,211,2099-02-02 00:00:00,80,bpm\n1,1,11,21,9999,2099-02-02 00:00:00,80,bpm\n"
    with chart.open("w") as stream:
        stream.write("ROW_ID,SUBJECT_ID,HADM_ID,ICUSTAY_ID,ITEMID,CHARTTIME,VALUENUM,VALUEUOM\n")
        stream.write(row.format(1))
        stream.writelines(["1,1,11,21,9999,2099-02-02 00:00:00,80,bpm\n" * 1000] * 4000)
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from sentinel.benchmarks.ehrsql.prepare import RELAXED, build\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "before = []\n"
        "hear = lambda t: before.append(peak()) if t.startswith('labevents') else None\n"
        "build(Path(sys.argv[1]), Path(sys.argv[2]), RELAXED, hear)\n"
        "print(peak() - before[-1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(tmp_path / "db.sqlite")],
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=True,
    )  # fmt: skip
    size = chart.stat().st_size / 2**20
    assert size > 160
    assert int(done.stdout) < 140  # MB: what is read ahead, not the file
    with closing(sqlite3.connect(tmp_path / "db.sqlite")) as db:
        assert db.execute("select count(*) from chartevents").fetchone() == (1,)


@pytest.mark.slow
def test_rows_that_are_kept_and_exchanged_are_not_kept_in_memory(tmp_path):
    """Twice the rows cost their permutation (16 bytes a row), not themselves."""
    code = (
        "import resource, sys\n"
        "from dataclasses import replace\n"
        "from pathlib import Path\n"
        "from sentinel.benchmarks.ehrsql.prepare import RELAXED, build\n"
        "rules = replace(RELAXED, shuffle=True)\n"
        "build(Path(sys.argv[1]), Path(sys.argv[2]), rules, lambda _: None, memory_mb=128)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)\n"
    )
    peaks = []
    for thousands in (600, 1200):
        folder = write_mimic(tmp_path / f"csv{thousands}", PERSON)
        with (folder / "CHARTEVENTS.csv").open("w") as stream:
            stream.write(
                "ROW_ID,SUBJECT_ID,HADM_ID,ICUSTAY_ID,ITEMID,CHARTTIME,VALUENUM,VALUEUOM\n"
            )
            stream.writelines(["1,1,11,21,211,2099-02-02 00:00:00,80,bpm\n" * 1000] * thousands)
        database = tmp_path / f"{thousands}.sqlite"
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder), str(database)],
            capture_output=True, text=True, cwd=ROOT, timeout=240, check=True,
        )  # fmt: skip
        peaks.append(int(done.stdout.split()[-1]))
        with closing(sqlite3.connect(database)) as db:
            (stored,) = db.execute("select count(*) from chartevents").fetchone()
        assert stored == 1000 * thousands
    assert peaks[1] - peaks[0] < 90  # MB; 600,000 rows as Python objects take some 300


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="SENTINEL_TEST_DATA names no benchmark data")
def test_every_gold_query_runs_on_the_database_of_the_open_demo(tmp_path):
    from jobs.gold import counts, run_gold
    from sentinel.benchmarks.ehrsql import EhrsqlBenchmark

    data = Path(str(DATA))
    built = tmp_path / "built.sqlite"
    about = build(data / "mimic3_demo_csv", built, RELAXED, report=lambda _: None)
    assert about["patients"] == 100
    assert about["current_patients"] == 10
    reference = tmp_path / "reference.sqlite"
    with pa.CompressedInputStream(str(data / "db/mimic3_demo.sqlite.zst"), "zstd") as stream:
        reference.write_bytes(stream.read())
    assert shape(built) == shape(reference)
    for version in ("1.0.0", "1.5.1"):
        benchmark = EhrsqlBenchmark(
            questions=str(data / f"ehrsql/mimic_iii_valid_v{version}.json.xz"),
            database=str(built),
            sandbox_workers=2,
        )
        try:
            benchmark.prepare(tmp_path)
            total = counts(run_gold(benchmark))
        finally:
            benchmark.close()
        assert (total.run, total.failed) == (760, 0)
    same_patients(built, reference)


def shape(database: Path) -> dict[str, Any]:
    """Tables with their columns, types, keys, and indexes."""
    with closing(sqlite3.connect(database)) as db:
        names = [n for (n,) in db.execute("select name from sqlite_master where type = 'table'")]
        columns = {
            name: [
                (c.lower(), kind.lower(), null, key)
                for _, c, kind, null, _, key in db.execute(f"pragma table_info({name})")
            ]
            for name in names
            if not name.startswith("sqlite")
        }
        told = "select name from sqlite_master where type = 'index' and name like 'ix%'"
        return columns | {"indexes": sorted(n for (n,) in db.execute(told))}


def same_patients(built: Path, reference: Path) -> None:
    """Patients whom both databases put into the same year have the same events, row by row."""
    with closing(sqlite3.connect(built)) as db:
        db.execute(f"attach '{reference}' as r")
        same = [
            s
            for (s,) in db.execute(
                "select subject_id from admissions group by 1 having min(admittime) ="
                " (select min(admittime) from r.admissions x"
                " where x.subject_id = admissions.subject_id)"
            )
        ]
        assert len(same) >= 15
        where = f"where subject_id in ({', '.join(map(str, same))})"
        for table in (
            *("admissions", "diagnoses_icd", "procedures_icd", "labevents", "prescriptions"),
            *("chartevents", "outputevents", "microbiologyevents", "icustays", "transfers"),
        ):
            names = [c for _, c, *_ in db.execute(f"pragma table_info({table})")][1:]
            select = f"select {', '.join(names)} from {{}}.{table} {where}"
            ours = sorted(map(str, db.execute(select.format("main"))))
            theirs = sorted(map(str, db.execute(select.format("r"))))
            assert ours == theirs, table
            assert ours
