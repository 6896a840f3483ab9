"""Files of chat episodes: every form, keys, strict outcomes, ids as text, bad records alone."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_chats import chat_records

from sentinel.chat_import import Imported, collect, outcome, parse_keys, read
from sentinel.errors import UserError

CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


def record(**changes: Any) -> dict[str, Any]:
    return {"task_id": "007", "trial": 0, "reward": 1.0, "traj": CHAT, **changes}


def of(*records: Any, **keys: str) -> Imported:
    return collect([(f"record {i}", r) for i, r in enumerate(records, 1)], keys)


FORMS = {
    "list.json": lambda r: json.dumps(r).encode(),
    "pretty.json": lambda r: json.dumps(r, indent=2).encode(),
    "bom.json": lambda r: b"\xef\xbb\xbf" + json.dumps(r).encode(),
    "list.json.xz": lambda r: lzma.compress(json.dumps(r).encode()),
    "lines.jsonl": lambda r: "\n".join(json.dumps(x) for x in r).encode(),
    "crlf.jsonl": lambda r: b"".join(json.dumps(x).encode() + b"\r\n\r\n" for x in r),
    "lines.jsonl.gz": lambda r: gzip.compress("\n".join(json.dumps(x) for x in r).encode()),
    "named like nothing": lambda r: json.dumps(r).encode(),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_file_gives_the_same(name: str, tmp_path: Path):
    records = chat_records(tasks=3, trials=2)
    path = tmp_path / name
    path.write_bytes(FORMS[name](records))
    found = read(path)
    assert [e.episode_id for e in found.episodes][:3] == ["000/0", "000/1", "001/0"]
    assert len(found.episodes) == found.records == 6
    assert (found.bad, found.duplicates) == ((), ())
    assert found.episodes == collect([("", r) for r in records]).episodes


def test_line_ends_inside_values_split_nothing(tmp_path: Path):
    chat = [{"role": "user", "content": "a\u2028b\x85c\u2029\x0b"}, CHAT[1]]
    path = tmp_path / "x.jsonl"
    lines = [json.dumps(record(trial=i, traj=chat), ensure_ascii=False) for i in range(2)]
    path.write_text("\n".join(lines), encoding="utf-8", newline="")
    assert len(read(path).episodes) == 2


def test_one_line_is_one_record(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(record()))
    assert len(read(path).episodes) == 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "holds no list of episodes;"),
        (b"  \n", "holds no list of episodes;"),
        (b"[]", "holds no list of episodes;"),
        (b"[1, 2]", "holds no list of episodes;"),
        (b"3", "holds no list of episodes;"),
        (b"PAR1\x00\xff\xfe", "holds no list of episodes"),
        (json.dumps([record()]).encode()[:-9], "holds no list of episodes: no JSON"),
        (b"[" * 200_000, "holds no list of episodes: nested too deeply"),
        (lzma.compress(b"[]")[:-7], "cannot be read"),
        (gzip.compress(b"[1, 2, 3]" * 99)[:-12], "cannot be read"),
        (b"\xfd7zXZ\x00rubbish", "cannot be read"),
    ],
)
def test_no_such_json_is_one_line(data: bytes, says: str, tmp_path: Path):
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(UserError, match=says) as error:
        read(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_a_missing_file_and_a_folder(tmp_path: Path):
    with pytest.raises(UserError, match="no file"):
        read(tmp_path / "none.json")
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path)


def test_a_bad_line_costs_only_itself(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    good = [json.dumps(record(trial=i)) for i in range(3)]
    path.write_bytes(
        "\n".join([good[0], "{broken", good[1], "7", good[2][:-5]]).encode() + b"\n\xff"
    )
    found = read(path)
    assert [e.episode_id for e in found.episodes] == ["007/0", "007/1"]
    assert [b.split(":")[0] for b in found.bad] == ["line 2", "line 4", "line 5", "line 6"]
    assert found.records == 6


def test_bad_records_are_named_and_cost_only_themselves():
    found = of(
        record(),
        None,
        record(trial=1, traj=None),
        record(trial=None),
        record(task_id=""),
        record(task_id=1.5),
        record(task_id=True),
        record(task_id="\ud800"),
        {"task_id": "1", "trial": 2, "reward": 1},
        record(trial=3, traj=[{"role": "user", "content": "q"}]),
        record(trial=4),
    )
    assert [e.episode_id for e in found.episodes] == ["007/0", "007/4"]
    assert len(found.bad) == 9
    assert found.bad[0] == "record 2: no object"
    assert found.bad[2] == "record 4: trial is null, not text or a whole number"
    assert found.bad[5] == "record 7: task_id is true, not text or a whole number"
    assert found.bad[7] == "record 9: no key traj"
    for line in found.bad:
        line.encode()


def test_no_usable_record_says_why():
    with pytest.raises(UserError, match="record 1: messages are null"):
        of(record(traj=None))


def test_missing_keys_are_named_at_once():
    with pytest.raises(UserError) as error:
        of({"problem": 1, "conversation": []}, {"info": 2})
    text = str(error.value)
    for name in ("task_id", "trial", "success or reward", "messages or traj"):
        assert name in text
    assert '"problem", "conversation", "info"' in text
    assert "--key" in text


def test_keys_can_be_renamed_and_go_into_objects():
    keys = parse_keys(["task_id=problem", "success=info.solved", "traj=log", "trial=n"])
    found = of({"problem": 1, "n": "02", "info": {"solved": True}, "log": CHAT}, **keys)
    assert found.episodes[0].episode_id == "1/02"
    assert found.episodes[0].success is True
    # A key with a dot in its own name comes first.
    both = {"problem": 1, "n": 1, "info.solved": 0, "info": {"solved": 1}, "log": CHAT}
    assert of(both, **keys).episodes[0].success is False


def test_other_names_of_episodes():
    rows = [{**record(), "uid": f"u/{i}"} for i in range(3)]
    assert [e.episode_id for e in of(*rows, id="uid").episodes] == ["u/0", "u/1", "u/2"]
    for row in rows:
        del row["trial"]
    numbered = of(*rows, trial="-")
    assert [e.episode_id for e in numbered.episodes] == ["007/0", "007/1", "007/2"]
    with pytest.raises(UserError, match="has the keys: trial "):
        of(*rows)


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (["task=x"], "task=x is no NAME=KEY"),
        (["task_id"], "task_id is no NAME=KEY"),
        (["task_id="], "task_id= is no NAME=KEY"),
        (["reward=a", "success=b"], "success is given twice"),
    ],
)
def test_keys_that_make_no_sense(pairs: list[str], says: str):
    with pytest.raises(UserError, match=says) as error:
        parse_keys([*pairs, "nonsense"])
    assert "nonsense is no NAME=KEY" in str(error.value)
    assert "task_id, trial, success, messages" in str(error.value)


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (True, True), (False, False), (1, True), (0, False), (1.0, True), (0.0, False),
        (-0.0, False), (0.999999, None), (0.5, None), (2, None), (-1, None), (None, None),
        ("1", None), ("true", None), ("", None), ([], None), ({}, None), ([1], None),
        (float("nan"), None), (float("inf"), None), (10**400, None),
    ],
)  # fmt: skip
def test_success_is_strict(value: Any, meaning: bool | None):
    assert outcome(value) is meaning


def test_unknown_outcomes_are_kept_and_counted_never_inferred():
    rows = [record(trial=i, reward=r, done=True) for i, r in enumerate((1, 0.5, None, 0.5, "yes"))]
    missing = record(trial=9, done=True)
    del missing["reward"]
    found = of(*rows, missing)
    assert [e.success for e in found.episodes] == [True, None, None, None, None, None]
    assert dict(found.unknown) == {"0.5": 2, "null": 1, '"yes"': 1, "missing": 1}


def test_success_is_its_own_value_before_a_reward():
    found = of(record(success=False, reward=1.0), record(trial=1))
    assert [e.success for e in found.episodes] == [False, None]
    assert found.keys["success"] == "success"


def test_the_first_of_several_with_one_id_is_kept():
    found = of(record(reward=0), record(reward=1), record(task_id=7), record(task_id="7"))
    assert [(e.episode_id, e.success) for e in found.episodes] == [("007/0", False), ("7/0", True)]
    assert found.duplicates == (
        'record 2: another episode "007/0"',
        'record 4: another episode "7/0"',
    )


def test_a_bad_record_does_not_take_the_id_of_a_good_one():
    found = of(record(traj=[]), record())
    assert [e.episode_id for e in found.episodes] == ["007/0"]


ids = st.one_of(st.integers(-5, 5), st.text(alphabet="a/%2F01", min_size=1, max_size=4))


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=8))
def test_ids_tell_pairs_apart(pairs: list[tuple[Any, Any]]):
    found = of(*(record(task_id=t, trial=n) for t, n in pairs))
    distinct = {(str(t), str(n)) for t, n in pairs}
    assert len(found.episodes) == len({e.episode_id for e in found.episodes}) == len(distinct)
    assert len(found.duplicates) == len(pairs) - len(distinct)
    assert {e.task_id for e in found.episodes} == {t for t, _ in distinct}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


chats = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.just("assistant") | json_values,
            "content": json_values,
            "tool_calls": json_values,
        }
    )
)
rows = st.fixed_dictionaries(
    {"task_id": json_values, "trial": json_values, "reward": json_values, "traj": chats}
)


@given(st.lists(json_values | rows, max_size=5))
def test_no_json_breaks_the_import(values: list[Any]):
    found = of(record(), *values)
    assert found.records == len(found.episodes) + len(found.bad) + len(found.duplicates)
    assert found.episodes[0].episode_id == "007/0"
