"""The run config: strict, frozen, every fault at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from jobs import config_files as files
from jobs.config import RunConfig
from jobs.sections import CollectConfig, content_hash
from sentinel.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def small(**changes: object) -> dict:
    agent = {"name": "a", "engine": "transformers", "model": "nano:a"}
    return {"name": "r", "benchmarks": [{"name": "clinic"}], "agents": [agent], **changes}


def write(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value))
    return path


def refuse(raw: dict, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        RunConfig.from_mapping(raw, overrides=overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_run_config_loads_from_any_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = RunConfig.from_file(path)
    assert RunConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("kind", ["agents", "monitors", "benchmarks", "sites"])
def test_every_shipped_part_loads(kind):
    for path in sorted((ROOT / "configs" / kind).glob("*.yaml")):
        value = files.resolve(kind, path.stem, ROOT / "configs")
        assert value["name"]
        raw = small(site=value) if kind == "sites" else small(**{kind: [value]})
        RunConfig.from_mapping(raw)


def test_all_faults_are_reported_at_once_with_valid_names():
    text = refuse(
        small(lable="typed"), "collect.wokers=3", "collect.limit=0", "decide.gate_budget=two"
    )
    assert "lable: unknown key (did you mean label?" in text
    assert "collect.wokers: unknown key (did you mean workers?" in text
    assert "collect.limit" in text
    assert "decide.gate_budget" in text


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("collect.workers=two", "collect.workers"),
        ("collect.workers=true", "collect.workers"),
        ("heads.learning_rate=.nan", "heads.learning_rate"),
        ("decide.lambdas=[1,-1]", "decide.lambdas"),
        ("decide.lambdas=[1,1]", "decide.lambdas"),
        ("decide.lambdas=[]", "decide.lambdas"),
        ("decide.lambdas=[.inf]", "decide.lambdas"),
        ("decide.gate_budget=1/0", "decide.gate_budget"),
        ("decide.gate_budget=1.5", "decide.gate_budget"),
        ("decide.shares=[1.0]", "decide.shares"),
        ("pools.calibration=0.9", "calibration + heldout"),
        ("label=semantic", "label"),
        ("on=mars", "on"),
        ("name=a/b", "name"),
        ("name=../x", "name"),
        ("sweep={agents: [a]}", "only settings"),
        ("agents.a.engine=tpu", "agents.0.engine"),
        ("agents=[]", "agents"),
        ("benchmarks=5", "benchmarks"),
    ],
)
def test_a_bad_value_is_named(override, word):
    assert word in refuse(small(), override)


@pytest.mark.parametrize("text", ["collect", "=3", "collect.=3", ".limit=3"])
def test_a_malformed_override_is_named(text):
    assert repr(text) in refuse(small(), text)


def test_an_override_reaches_list_items_by_name_or_index():
    config = RunConfig.from_mapping(
        small(), overrides=["agents.a.dtype=bfloat16", "benchmarks.0.n_questions=7"]
    )
    assert config.agents[0].dtype == "bfloat16"
    assert config.benchmarks[0].mapping()["n_questions"] == 7
    assert "no item 'b'" in refuse(small(), "agents.b.dtype=float16")


def test_names_used_twice_are_refused():
    raw = small()
    raw["agents"] *= 2
    assert "named twice: a" in refuse(raw)


def test_an_unknown_name_is_answered_with_the_close_one(tmp_path):
    path = write(tmp_path / "run.yaml", {"benchmarks": [{"name": "b"}], "agents": ["nano-sgae"]})
    with pytest.raises(UserError, match="did you mean nano-sage"):
        RunConfig.from_file(path)


def test_names_are_found_beside_the_config_first(tmp_path):
    write(tmp_path / "agents" / "nano-sage.yaml", {"engine": "vllm", "model": "./weights"})
    path = write(tmp_path / "run.yaml", {"benchmarks": [{"name": "b"}], "agents": ["nano-sage"]})
    agent = RunConfig.from_file(path).agents[0]
    assert (agent.name, agent.engine) == ("nano-sage", "vllm")
    assert agent.model == str(tmp_path / "agents" / "weights")


def test_an_inline_mapping_may_start_from_a_file(tmp_path):
    write(tmp_path / "benchmarks" / "b.yaml", {"seed": 1, "n_questions": 10, "data_dir": "d"})
    raw = {"benchmarks": [{"from": "b", "n_questions": 3}], "agents": ["nano-sage"]}
    benchmark = RunConfig.from_file(write(tmp_path / "run.yaml", raw)).benchmarks[0]
    assert benchmark.mapping() == {
        "name": "b",
        "seed": 1,
        "n_questions": 3,
        "data_dir": str(tmp_path / "benchmarks" / "d"),
    }


def test_paths_are_absolute_and_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_DATA", str(tmp_path / "data"))
    raw = {
        "benchmarks": [{"name": "b", "data_dir": "$SOME_DATA/x", "database": "../d.sqlite"}],
        "agents": [{"name": "a", "engine": "transformers", "model": "org/model"}],
        "stop_with": "./monitor",
    }
    config = RunConfig.from_file(write(tmp_path / "c" / "run.yaml", raw))
    assert config.benchmarks[0].mapping()["data_dir"] == str(tmp_path / "data" / "x")
    assert config.benchmarks[0].mapping()["database"] == str(tmp_path / "d.sqlite")
    assert config.stop_with == str(tmp_path / "c" / "monitor")
    assert config.agents[0].model == "org/model"


def test_paths_in_overrides_start_from_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = RunConfig.from_mapping(small(), overrides=["agents.a.model=./w", "stop_with=~/m"])
    assert config.agents[0].model == str(tmp_path / "w")
    assert config.stop_with == str(Path("~/m").expanduser())


def test_the_config_is_frozen():
    config = RunConfig.from_mapping(small())
    with pytest.raises(ValidationError):
        config.collect.workers = 3  # type: ignore[misc]


def test_a_bare_decimal_keeps_its_written_value():
    config = RunConfig.from_mapping(small(), overrides=["decide.gate_budget=0.005"])
    assert config.decide.gate_budget == "0.005"


def test_hashes_cover_only_what_results_depend_on():
    base = CollectConfig()
    assert CollectConfig(workers=7, concurrency=1, limit=3).hash() == base.hash()
    assert CollectConfig(temperature=0.5).hash() != base.hash()
    assert CollectConfig(temperature=0.5).hash("temperature") == base.hash("temperature")


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_a_hash_ignores_the_order_of_keys(mapping):
    assert content_hash(mapping) == content_hash(dict(reversed(mapping.items())))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("1e-3", 1e-3),
        ("0.005", 0.005),
        ("017", "017"),
        ("0", 0),
        ("-40", -40),
        ("00.5", "00.5"),
        ("1_000", 1000),
        ("1:30", "1:30"),
        ("2105-12-31", "2105-12-31"),
        ("2105-12-31 23:59:00", "2105-12-31 23:59:00"),
        ("3", 3),
        ("-", None),
    ],
)
def test_yaml_words_and_numbers(text, value):
    if value is None:
        assert files.parse_yaml(text, "t") == [None]
    else:
        assert files.parse_yaml(text, "t") == value


def test_on_as_a_key_is_a_word(tmp_path):
    assert RunConfig.from_file(write(tmp_path / "r.yaml", {**small(), "on": "debug"})).on == "debug"
    text = "on: debug\n" + yaml.safe_dump(small())
    assert RunConfig.from_file(write(tmp_path / "s.yaml", text)).on == "debug"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("seed: 1\nseed: 2\n", "written twice: seed"),
        ("a: [1\n", "line 2"),
        ("- 1\n", "no mapping"),
        ("", "no mapping"),
        ("a: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
    ],
)
def test_bad_yaml_is_one_line(tmp_path, text, word):
    with pytest.raises(UserError, match=word):
        RunConfig.from_file(write(tmp_path / "run.yaml", text))


def test_a_missing_file_names_its_neighbours(tmp_path):
    write(tmp_path / "demo.yaml", small())
    with pytest.raises(UserError, match=r"did you mean demo\.yaml"):
        RunConfig.from_file(tmp_path / "dmeo.yaml")


def test_not_utf8_is_one_line(tmp_path):
    (tmp_path / "run.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot read"):
        RunConfig.from_file(tmp_path / "run.yaml")


def test_names_of_agents_and_benchmarks_are_looked_up():
    config = RunConfig.from_mapping(small())
    assert config.agent("a").name == "a"
    with pytest.raises(UserError, match="no benchmark named 'clinci'; did you mean clinic"):
        config.benchmark("clinci")
