"""EHRSQL-2024: its files beside each other, groups without templates, published answers."""

from __future__ import annotations

import json
import lzma
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from made_ehrsql import write_database

from jobs.__main__ import main
from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.ehrsql.shared_task import (
    Ehrsql2024Benchmark,
    read_splits,
    similar_groups,
    skeleton,
)

DATA = os.environ.get("SENTINEL_TEST_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="SENTINEL_TEST_DATA names no benchmark data")
GOLD = "SELECT COUNT(*) FROM admissions WHERE admissions.subject_id = {}"


def write_split(folder: Path, split: str, version: str = "1.1.1", **left_out: bool) -> Path:
    """Two questions with an answer and one without, as the shared task publishes them."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = [f"{split}{i}" for i in range(3)]
    parts: dict[str, Any] = {
        "data": {
            "version": f"{split}_v{version}",
            "data": [{"id": i, "question": f"Question {i}?"} for i in ids],
        },
        "label": dict(zip(ids, [GOLD.format(2), GOLD.format(3), "null"], strict=True)),
        "answer": dict(zip(ids, ["[['2']]", "[['3.0']]", "null"], strict=True)),
        "annotated": [
            {"id": i, "template": t}
            for i, t in zip(ids, ["count {a}", "count {a}", "-"], strict=True)
        ],
    }
    for name, content in parts.items():
        if not left_out.get(name):
            data = json.dumps(content).encode()
            (folder / f"{split}.{name}.json.xz").write_bytes(lzma.compress(data))
    return folder / f"{split}.data.json.xz"


def benchmark(tmp_path: Path, *paths: Path, **settings: Any) -> Ehrsql2024Benchmark:
    if not (tmp_path / "db.sqlite").exists():
        write_database(tmp_path / "db.sqlite")
    return Ehrsql2024Benchmark(
        questions=[str(p) for p in paths],
        database=str(tmp_path / "db.sqlite"),
        clock="2105-12-31 23:59:00",
        **settings,
    )


def test_a_split_is_read_with_what_lies_beside_it(tmp_path):
    from jobs.gold import counts, run_gold

    made = benchmark(tmp_path, write_split(tmp_path, "valid"))
    try:
        made.prepare(tmp_path)
        tasks = made.tasks()
        assert [t.group for t in tasks] == ["count {a}", "count {a}", "words: valid2"]
        assert [t.answerable for t in tasks] == [True, True, False]
        assert tasks[0].meta["version"] == "2024-1.1.1"
        total = counts(run_gold(made))  # '2' is 2 and '3.0' is 3 for this scorer
        assert (total.run, total.reproduced) == (2, 2)
    finally:
        made.close()


def test_groups_are_templates_only_where_every_split_has_them(tmp_path):
    valid = write_split(tmp_path, "valid")
    train = write_split(tmp_path, "train", annotated=True)
    both = {t.task_id: t.group for t in benchmark(tmp_path, valid, train).tasks()}
    assert both["valid0"] == both["train0"] == skeleton(GOLD.format(1)) == "skeleton: @admissions"
    chosen = benchmark(tmp_path, valid, groups="skeleton").tasks()
    assert chosen[0].group == "skeleton: @admissions"
    with pytest.raises(DataError, match="no annotated file beside it"):
        benchmark(tmp_path, valid, train, groups="template").tasks()
    with pytest.raises(DataError, match="groups is 'other'"):
        benchmark(tmp_path, valid, groups="other")


def test_questions_without_an_answer_are_grouped_by_common_words():
    groups = similar_groups(
        {
            "a": "What is the phone number of the doctor of patient 1",
            "b": "what's the phone number of the doctor of patient 22?",
            "c": "Which doctor is on duty tonight",
            "d": "phone number of the doctor of patient",
        }
    )
    assert groups == {"a": "words: a", "b": "words: a", "c": "words: c", "d": "words: a"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("test", "official test split"),
        ("version", r"unknown version \(valid_v9\.0"),
        ("label", "no label file beside it"),
        ("lost", "1 questions are not in the label file"),
        ("kind", "is no data file"),
        ("mixed", "differ in version"),
    ],
)
def test_bad_files_are_named(tmp_path, change, says):
    name = "test" if change == "test" else "valid"
    version = "9.0" if change == "version" else "1.1.1"
    paths = [write_split(tmp_path, name, version, label=change == "label")]
    if change == "lost":
        path = tmp_path / "valid.label.json.xz"
        kept = dict(list(json.loads(lzma.decompress(path.read_bytes())).items())[1:])
        path.write_bytes(lzma.compress(json.dumps(kept).encode()))
    if change == "kind":
        paths = [tmp_path / "valid.label.json.xz"]
    settings: dict[str, Any] = {}
    if change == "mixed":
        paths.append(write_split(tmp_path, "train", "1.0"))
        with pytest.raises(DataError, match="unknown version"):
            benchmark(tmp_path, *paths).tasks()
        settings = {"version": "1.1.1"}
        says = "is of version 1.0, not 1.1.1"
    with pytest.raises(DataError, match=says):
        benchmark(tmp_path, *paths, **settings).tasks()


def rewritten(path: Path, change: Any) -> None:
    content = json.loads(lzma.decompress(path.read_bytes()))
    path.write_bytes(lzma.compress(json.dumps(change(content)).encode()))


@pytest.mark.parametrize(
    ("folder", "name", "refused"),
    [
        ("other", "test", True),
        ("other", "mimic_test", True),
        ("test", "all", True),
        ("mimic-iv_test", "all", True),
        ("test", "valid", False),
        ("latest", "all", False),
    ],
)
def test_the_test_split_is_told_by_its_name_where_its_version_says_nothing(
    tmp_path, folder, name, refused
):
    path = write_split(tmp_path / folder, name)
    rewritten(path, lambda data: data | {"version": "1.1.1"})
    made = benchmark(tmp_path, path, version="1.1.1")
    if not refused:
        assert len(made.tasks()) == 3
        return
    with pytest.raises(DataError, match="official test split"):
        made.tasks()


def test_a_version_that_names_its_split_is_believed(tmp_path):
    assert len(benchmark(tmp_path, write_split(tmp_path / "test", "valid")).tasks()) == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: {f"x{i}": v for i, v in a.items()}, "3 questions are not in the answer file"),
        (lambda a: a | {"valid0": "null"}, "question valid0 has an answer that is no list"),
        (lambda a: a | {"valid0": None}, "question valid0 has an answer that is no list"),
        (lambda a: a | {"valid0": "[3]"}, "question valid0 has an answer whose rows are no lists"),
    ],
)
def test_bad_answers_are_named(tmp_path, change, says):
    path = write_split(tmp_path, "valid")
    rewritten(tmp_path / "valid.answer.json.xz", change)
    with pytest.raises(DataError, match=says):
        benchmark(tmp_path, path).tasks()


def test_a_declared_version_and_the_test_split_are_possible(tmp_path):
    tasks = benchmark(tmp_path, write_split(tmp_path, "test", "9.0"), version="9.0",
                      official_test=True).tasks()  # fmt: skip
    assert {t.meta["version"] for t in tasks} == {"2024-9.0"}


@pytest.mark.data
@needs_data
def test_no_template_has_two_skeletons_and_train_has_no_group_of_its_own():
    folder = Path(str(DATA)) / "ehrsql2024"
    (valid,) = read_splits([folder / "valid.data.json.xz"])
    skeletons = defaultdict(set)
    for q in valid.questions:
        if q.query is not None:
            skeletons[q.group].add(skeleton(q.query))
    assert len(skeletons) == 134
    assert {len(found) for found in skeletons.values()} == {1}
    assert len(set().union(*skeletons.values())) == 68
    train, again = read_splits([folder / f"{s}.data.json.xz" for s in ("train", "valid")])
    assert len(train.questions) == 5124
    assert len(again.questions) == 1163
    groups = {q.group for q in train.questions if q.query is not None}
    assert groups < {q.group for q in again.questions if q.query is not None}


@pytest.mark.data
@needs_data
def test_doctor_reproduces_the_published_answers_but_for_the_listed_ones(tmp_path, capsys):
    from jobs.gold import run_gold

    data = Path(str(DATA))
    database = tmp_path / "mimic4.sqlite"
    with pa.CompressedInputStream(str(data / "db/mimic4_demo.sqlite.zst"), "zstd") as stream:
        database.write_bytes(stream.read())
    valid = data / "ehrsql2024/valid.data.json.xz"
    root = Path(__file__).resolve().parents[4]
    config = root / "configs/benchmarks/ehrsql2024-mimic4-demo.yaml"
    settings = [f"database={database}", f"questions=[{valid}]"]
    assert main(["doctor", str(config), *settings]) == 0
    told = capsys.readouterr().out
    assert "909 of 931 known answers reproduced" in told
    assert "the other 22 are listed as not reproducible" in told
    made = Ehrsql2024Benchmark(questions=str(valid), database=str(database))
    try:
        outcomes = run_gold(made)
        listed = made.not_reproduced & {t.task_id for t in made.tasks()}
    finally:
        made.close()
    assert {o.task_id for o in outcomes if o.reproduced is False} == listed
    assert sum(bool(o.reproduced) for o in outcomes) / len(outcomes) >= 0.965
    assert main(["doctor", str(config), *settings, 'clock="2105-12-31 23:59:00"']) == 2
    assert "more than a year before the clock 2105" in capsys.readouterr().out
