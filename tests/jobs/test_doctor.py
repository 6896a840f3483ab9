"""`sentinel doctor`: each check finds what it is for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from made_ehrsql import impossible, record, write_database, write_questions

from jobs import doctor
from jobs.__main__ import main
from jobs.config import RunConfig
from jobs.gold import Outcome, counts, reproduced, run_gold, verdict
from jobs.sections import AgentConfig
from jobs.tasks import opened
from sentinel.errors import UserError
from sentinel.sql.result import Result

ROOT = Path(__file__).resolve().parents[2]
DATA = os.environ.get("SENTINEL_TEST_DATA")


def agent(**changes: object) -> AgentConfig:
    return AgentConfig(**{"name": "a", "engine": "transformers", "model": "m", **changes})


def test_the_imports_are_at_home():
    assert [c.state for c in doctor.import_location() if c.what == "imports"] == ["ok"]


@pytest.mark.parametrize("name", ["sentinel", "cluster"])
def test_a_stranger_of_the_same_name_is_found(tmp_path, name):
    (tmp_path / name).mkdir()
    for file in ("__init__.py", "errors.py"):
        (tmp_path / name / file).write_text("class UserError(Exception): ...\n")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        f"import {name}; sys.path.pop(0);"
        f"import importlib; {name}.__path__.append(sys.argv[2]);"
        "from jobs.doctor import import_location; print([str(c) for c in import_location()])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(ROOT / name)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        timeout=60,
    )
    assert "FAIL" in done.stdout, done.stderr
    assert f"{name} from {tmp_path}" in done.stdout


def test_an_agent_folder_without_weights_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"lacks weights \(\*\.safetensors\), tokenizer\.json"):
        doctor.engine(agent(model=str(tmp_path)))


def test_a_complete_folder_passes(tmp_path):
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    assert doctor.engine(agent(model=str(tmp_path))).state == "ok"


def test_an_unknown_nano_agent_is_named():
    with pytest.raises(UserError, match="no weights for nano agent 'nobody'"):
        doctor.engine(agent(model="nano:nobody"))


def test_an_api_agent_needs_its_key(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(UserError, match=r"\$SOME_KEY"):
        doctor.engine(agent(engine="openai", api_key_env="SOME_KEY"))
    monkeypatch.setenv("SOME_KEY", "k")
    assert doctor.engine(agent(engine="openai", api_key_env="SOME_KEY")).state == "ok"


def test_gold_queries_of_the_hospital_run(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path))
    raw = {"name": "r", "benchmarks": [{"name": "clinic", "n_questions": 300}], "agents": []}
    raw["agents"] = [{"name": "a", "engine": "transformers", "model": "m"}]
    config = RunConfig.from_mapping(raw)
    with opened(config.benchmarks[0]) as benchmark:
        total = counts(run_gold(benchmark, 200))
    assert total.run == 200
    assert total.failed == 0
    assert total.values >= 0.85 * total.run


def test_missing_data_is_a_failed_check(tmp_path):
    raw = {
        "name": "r",
        "benchmarks": [{"name": "nowhere", "kind": "no-such-kind"}],
        "agents": [{"name": "a", "engine": "transformers", "model": "m"}],
    }
    (check,) = doctor.benchmarks(RunConfig.from_mapping(raw), None)
    assert check.state == "FAIL"
    assert "\n" not in str(check)


def test_counts_name_the_first_error():
    outcomes = [
        Outcome("q1", "ok", True, True),
        Outcome("q2", "empty", False, None),
        Outcome("q3", "error", False, False, "no such table: x"),
    ]
    text = str(counts(outcomes))
    assert text.startswith("1 ok, 1 empty, 1 error of 3 (33.3 % give a value)")
    assert "1 of 2 known answers reproduced" in text
    assert "q3: no such table: x" in text


@pytest.mark.parametrize(
    ("known", "same"),
    [
        (None, None),
        (Result(("n",), ((2,), (1,))).to_json(), True),
        ([[1], [2]], True),
        ("[[1], [2]]", True),
        ([1.0, 2.0], True),
        ([1, 2, 2], False),
        (1, False),
    ],
)
def test_known_answers_are_compared_by_value(known, same):
    answer = Result(("x",), ((1,), (2,))).to_json()
    assert reproduced(known, answer) is same


def test_a_gold_action_without_a_result_reproduces_nothing():
    assert reproduced([[1]], None) is False


def test_no_gold_at_all_is_said():
    assert "no reference actions" in str(counts([]))


def test_an_answer_that_is_not_reproduced_is_a_fault_unless_it_is_listed():
    good, other = Outcome("q1", "ok", True, True), Outcome("q2", "ok", True, False)
    failed = Outcome("q3", "error", False, False, "no such table: x")
    assert verdict([]) == ("note", "")
    assert verdict([good]) == ("ok", "")
    state, detail = verdict([good, other])
    assert state == "FAIL"
    assert "1 with another answer (first: q2): name the database and clock" in detail
    assert verdict([good, other], {"q2", "q9"})[0] == "ok"
    assert "the other 1 are listed" in verdict([good, other], {"q2"})[1]
    assert verdict([good, failed], {"q3"})[0] == "FAIL"  # only other answers are excused


def test_settings_of_a_benchmark_alone_go_without_a_prefix(tmp_path):
    (tmp_path / "b.yaml").write_text("kind: clinic\nname: c\nn_questions: 300\nseed: 1\n")
    settings = ["n_questions=60", "seed=4", "database=here.sqlite", "pools.seed=3"]
    config, alone = doctor.read(str(tmp_path / "b.yaml"), settings)
    assert alone == "benchmark"
    found = config.benchmarks[0].mapping()
    assert (found["n_questions"], found["seed"], config.pools.seed) == (60, 4, 3)
    assert found["database"] == str(Path.cwd() / "here.sqlite")
    config, _ = doctor.read(str(tmp_path / "b.yaml"), ["benchmarks.c.n_questions=61"])
    assert config.benchmarks[0].mapping()["n_questions"] == 61
    config, _ = doctor.read(str(tmp_path / "b.yaml"), ["questions=[a.json, /b.json]"])
    assert config.benchmarks[0].mapping()["questions"] == [str(Path.cwd() / "a.json"), "/b.json"]


def test_doctor_refuses_what_does_not_fit_and_says_the_way_out(tmp_path, capsys):
    questions = write_questions(
        tmp_path / "q.json",
        [
            record(3, src_id="x", answer="['(3,)']"),
            record(4, src_id="y", answer="['(5,)']", q_tag="other"),
            impossible(5),
        ],
    )
    write_database(tmp_path / "db.sqlite")
    command = ["doctor", str(ROOT / "configs/benchmarks/ehrsql-mimic3-demo.yaml")]
    few = ["agent_share=null"]  # three questions make no pools: the table's check fails first
    base = [*command, f"database={tmp_path / 'db.sqlite'}", f"questions={questions}", *few]
    assert main(base) == 2
    assert "pools cannot be used" in capsys.readouterr().out
    assert main([*base, 'clock="2100-12-31 23:59:00"']) == 2
    assert "after the clock 2100-12-31 23:59:00; set clock" in capsys.readouterr().out
    assert main([*base, f"database={tmp_path / 'none.sqlite'}"]) == 2
    assert "set database to the SQLite file" in capsys.readouterr().out
    write_questions(questions, [record(3)])
    assert main(base) == 2
    assert "unknown version" in capsys.readouterr().out


def test_pools_are_compared_with_the_published_ones() -> None:
    def said(train: int, heldout: int) -> tuple[str, str]:
        pools = ["train"] * train + ["heldout"] * heldout
        found = doctor._pools("b", pa.table({"pool": pools}), {"train": 5, "heldout": 3})
        return found.state, found.detail

    assert said(5, 3) == ("ok", "heldout 3, train 5, as published")
    assert said(4, 4) == ("note", "heldout 4, train 4, but published are heldout 3, train 5")
    assert said(4, 3) == ("ok", "heldout 3, train 4")  # cut by collect.limit, or other files


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="SENTINEL_TEST_DATA names no benchmark data")
def test_the_open_demo_is_sound(tmp_path, capsys):
    """The shipped config over the user's files: every gold query runs and gives its answer."""
    data = Path(str(DATA))
    with pa.CompressedInputStream(str(data / "db/mimic3_demo.sqlite.zst"), "zstd") as stream:
        (tmp_path / "demo.sqlite").write_bytes(stream.read())
    questions = data / "reground/mimic3_demo_questions.json.xz"
    config = str(ROOT / "configs/benchmarks/ehrsql-mimic3-demo.yaml")
    base = ["doctor", config, f"database={tmp_path / 'demo.sqlite'}", f"questions={questions}"]
    assert main(base) == 0
    told = capsys.readouterr().out
    assert "6379 of 6379 known answers reproduced" in told
    assert "0 error of 6379" in told
    assert "ehrsql-mimic3-demo: pools" in told
