import json
import lzma
import os
from collections import Counter
from pathlib import Path

import pytest
from made_ehrsql import impossible, record, write_questions

from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.ehrsql.questions import read_questions

DATA = os.environ.get("SENTINEL_TEST_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="SENTINEL_TEST_DATA names no benchmark data")


@pytest.mark.parametrize("name", ["valid.json", "valid.json.xz"])
def test_both_forms_are_read(tmp_path, name):
    file = read_questions(write_questions(tmp_path / name, [record(1), impossible(2)]), "1.5.1")
    answerable, not_answerable = file.questions
    assert (answerable.group, answerable.query is None) == (
        "how many stays has patient {patient_id}?",
        False,
    )
    assert (not_answerable.group, not_answerable.query) == ("test schedule", None)
    assert file.db_id == "mimic_iii"
    assert file.version == "1.5.1"


def test_a_known_answer_keeps_its_types(tmp_path):
    rows = [record(1, answer="['(11.5,)', \"('po', None)\"]", src_id="x")]
    (question,) = read_questions(write_questions(tmp_path / "a.json", rows)).questions
    assert question.answer == ((11.5,), ("po", None))
    assert question.source_id == "x"


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([record(1)], "unknown version"),
        ([record(1), record(1)], "twice"),
        ([record(1), record(2, db_id="eicu")], "mixes databases"),
        ([{k: v for k, v in record(1).items() if k != "query"}], "has no query"),
        ([], "no list of questions"),
        ([record(1, query=None)], "record 0 has no gold query and is not marked is_impossible"),
        ([record(1, answer="n/a", src_id="x")], "record 0 has an answer that is no list of rows"),
        ([record(1, answer="[nan]", src_id="x")], "an answer that is no list of rows"),
        ([record(1, answer=["(1,)"], src_id="x")], "an answer that is no list of rows"),
        ([record(1, answer="['(nan,)']", src_id="x")], "a row of an answer that is no tuple"),
        ([record(1, answer="[3]", src_id="x")], "a row of an answer that is no tuple"),
        ([record(1, src_id="x"), record(2)], "mixes 1 re-grounded questions with others"),
    ],
)
def test_bad_files_are_named(tmp_path, records, says):
    with pytest.raises(DataError, match=says):
        read_questions(write_questions(tmp_path / "a.json", records))


def test_missing_cut_and_foreign_files_are_named(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        read_questions(tmp_path / "none.json")
    cut = tmp_path / "cut.json.xz"
    cut.write_bytes(lzma.compress(json.dumps([record(1)]).encode())[:-9])
    with pytest.raises(DataError, match="cut short"):
        read_questions(cut)
    (tmp_path / "b.json").write_text("{not json")
    with pytest.raises(DataError, match="no JSON"):
        read_questions(tmp_path / "b.json")


@needs_data
@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "version", "n", "unanswerable"),
    [
        ("mimic_iii_valid_v1.0.0", "1.0.0", 1122, 362),
        ("mimic_iii_valid_v1.5.1", "1.5.1", 1122, 362),
        ("mimic_iii_train_subset553_v1.0", "1.0.0", 553, 0),
        ("eicu_valid_v1.5.1", "1.5.1", 1117, 362),
    ],
)
def test_versions_of_the_published_files_are_told_apart(name, version, n, unanswerable):
    file = read_questions(Path(str(DATA)) / "ehrsql" / f"{name}.json.xz")
    assert file.version == version
    assert len(file.questions) == n
    assert Counter(q.query is None for q in file.questions)[True] == unanswerable
    other = "1.5.1" if version == "1.0.0" else "1.0.0"
    with pytest.raises(DataError, match=f"version {version}"):
        read_questions(file.path, other)
