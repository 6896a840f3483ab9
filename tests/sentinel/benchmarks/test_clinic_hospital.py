import re
import sqlite3
from pathlib import Path

import pytest

from sentinel.benchmarks.clinic import hospital, schema, vocabulary
from sentinel.errors import UserError

SEED, PATIENTS = 2105, 360


@pytest.fixture(scope="module")
def rows():
    return hospital.hospital_rows(SEED, PATIENTS)


@pytest.fixture(scope="module")
def database(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("clinic") / "clinic.sqlite"
    hospital.build(path, rows)
    return path


@pytest.fixture(scope="module")
def db(database):
    connection = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)
    yield connection
    connection.close()


def scalar(db, sql):
    return db.execute(sql).fetchone()[0]


def test_same_seed_same_bytes(database, tmp_path):
    again = tmp_path / "again.sqlite"
    hospital.build(again, hospital.hospital_rows(SEED, PATIENTS))
    assert again.read_bytes() == database.read_bytes()
    assert list(tmp_path.iterdir()) == [again]


def test_another_seed_is_another_hospital(rows):
    other = hospital.hospital_rows(SEED + 1, 300)
    assert hospital.digest(other) != hospital.digest(rows)
    assert len(other["patients"]) == 300


def test_failed_build_keeps_the_good_file(database, rows, tmp_path):
    path = tmp_path / "clinic.sqlite"
    path.write_bytes(database.read_bytes())
    broken = dict(rows) | {"patients": [(1, 2)]}
    with pytest.raises(sqlite3.Error):
        hospital.build(path, broken)
    assert path.read_bytes() == database.read_bytes()
    assert list(tmp_path.iterdir()) == [path]


def test_seventeen_tables_with_keys(db):
    names = [r[0] for r in db.execute("select name from sqlite_master where type = 'table'")]
    assert sorted(names) == sorted(schema.NAMES)
    assert len(names) == 17
    for table in schema.TABLES:
        info = db.execute(f"pragma table_info({table.name})").fetchall()
        assert [c[1] for c in info] == [name for name, _ in table.columns]
        assert [c[1] for c in info if c[5]] == ["row_id"]
        foreign = {(f[3], f[2], f[4]) for f in db.execute(f"pragma foreign_key_list({table.name})")}
        assert foreign == set(table.foreign)
        assert scalar(db, f"select count(*) from {table.name}") > 0
    assert sum(len(t.foreign) for t in schema.TABLES) == 25


def test_every_declared_reference_resolves(db):
    # cost.event_id has four parents, of which event_type chooses one; SQLite cannot say so
    broken = [r for r in db.execute("pragma foreign_key_check") if r[0] != "cost"]
    assert broken == []
    kinds = [r[0] for r in db.execute("select distinct event_type from cost")]
    assert set(kinds) == {"diagnoses_icd", "procedures_icd", "labevents", "prescriptions"}
    for kind in kinds:
        lost = scalar(
            db,
            f"select count(*) from cost where event_type = '{kind}' and not exists (select 1 from "
            f"{kind} e where e.row_id = event_id and e.hadm_id = cost.hadm_id)",
        )
        assert lost == 0
        assert scalar(db, f"select count(*) from cost where event_type = '{kind}'") == scalar(
            db, f"select count(*) from {kind}"
        )


def test_five_years_before_the_clock(db):
    assert scalar(db, "select count(*) from patients") >= 300
    years = [
        r[0]
        for r in db.execute("select distinct strftime('%Y', admittime) from admissions order by 1")
    ]
    assert years == ["2101", "2102", "2103", "2104", "2105"]
    for table in schema.TABLES:
        for name, kind in table.columns:
            if kind.startswith("timestamp"):
                latest = scalar(db, f"select max({name}) from {table.name}")
                assert latest <= schema.CLOCK
                odd = db.execute(f"select {name} from {table.name} where {name} is not null")
                assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", r[0]) for r in odd)


def test_lives_are_consistent(db):
    for sql in (
        "select count(*) from admissions where dischtime <= admittime",
        "select count(*) from admissions a join admissions b on a.subject_id = b.subject_id "
        "where a.hadm_id < b.hadm_id and (a.dischtime is null or b.admittime <= a.dischtime)",
        "select count(*) from admissions where (dischtime is null) != (discharge_location is null)",
        "select count(*) from patients p join admissions a on a.subject_id = p.subject_id "
        "where dod is not null and (dischtime is null or dod < dischtime)",
        "select count(*) from patients where dod <= dob",
        "select count(*) from icustays i join admissions a on i.hadm_id = a.hadm_id where "
        "i.intime < a.admittime or i.outtime > a.dischtime or i.subject_id != a.subject_id",
        "select count(*) from chartevents c join icustays i on c.icustay_id = i.icustay_id where "
        "c.charttime < i.intime or c.charttime > i.outtime",
        "select count(*) from icustays where outtime is null and hadm_id in "
        "(select hadm_id from admissions where dischtime is not null)",
        "select count(*) from prescriptions where enddate < startdate",
    ):
        assert scalar(db, sql) == 0, sql
    for table in ("diagnoses_icd", "procedures_icd", "labevents", "microbiologyevents"):
        outside = (
            f"select count(*) from {table} e join admissions a on e.hadm_id = a.hadm_id where "
            "e.charttime < a.admittime or e.charttime > a.dischtime or e.subject_id != a.subject_id"
        )
        assert scalar(db, outside) == 0, table
    ages = "select count(*) from admissions a join patients p on a.subject_id = p.subject_id where "
    years = (
        "strftime('%Y', admittime) - strftime('%Y', dob) "
        "- (strftime('%m-%d', admittime) < strftime('%m-%d', dob))"
    )
    assert scalar(db, f"{ages} age != {years} or age < 18") == 0


def test_inpatients_and_deaths(db):
    inside = scalar(db, "select count(*) from admissions where dischtime is null")
    assert inside >= 20
    assert scalar(db, "select count(*) from patients where dod is not null") >= 40
    died = "select count(*) from admissions where discharge_location = 'died'"
    assert scalar(db, died) >= 15


def test_codes_are_text_with_leading_zeros(db):
    for table in ("d_icd_diagnoses", "diagnoses_icd", "d_icd_procedures", "procedures_icd"):
        assert scalar(db, f"select count(*) from {table} where typeof(icd9_code) != 'text'") == 0
        assert scalar(db, f"select count(*) from {table} where icd9_code like '0%'") > 0


def test_closed_vocabularies():
    assert len(vocabulary.DRUGS) >= 30
    assert len(vocabulary.DIAGNOSES) == 30
    assert len(vocabulary.PROCEDURES) >= 20
    assert len(vocabulary.LABS) == 25
    assert len(vocabulary.VITALS) == 8
    assert len(vocabulary.SPECIMENS) == len(vocabulary.ORGANISMS) == 10
    drugs, procedures = {d[0] for d in vocabulary.DRUGS}, {p[1] for p in vocabulary.PROCEDURES}
    assert set(vocabulary.USUAL) == {d[1] for d in vocabulary.DIAGNOSES}
    for usual_drugs, usual_procedures in vocabulary.USUAL.values():
        assert set(usual_drugs.split(",")) <= drugs
        assert set(filter(None, usual_procedures.split(","))) <= procedures
    labels = [x[1] for x in (*vocabulary.VITALS, *vocabulary.INPUTS, *vocabulary.OUTPUTS)]
    assert len(labels) == len(set(labels))


def test_patient_ids_have_three_to_five_digits(rows):
    assert all(100 <= row[1] <= 99_999 for row in rows["patients"])


@pytest.mark.parametrize(
    ("seed", "patients"), [(-1, 360), ("7", 360), (True, 360), (1, 12), (1, 10**6)]
)
def test_bad_sizes_are_user_errors(seed, patients):
    with pytest.raises(UserError, match="clinic: "):
        hospital.hospital_rows(seed, patients)


def test_build_makes_the_folder(rows, tmp_path: Path):
    path = tmp_path / "a b#c%20" / "clinic.sqlite"
    hospital.build(path, rows)
    assert path.is_file()
