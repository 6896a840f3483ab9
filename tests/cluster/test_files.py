from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import files

NAMES = st.text(st.characters(codec="utf-8"), max_size=400)


@given(NAMES)
def test_a_safe_name_is_one_short_visible_file_name(name: str) -> None:
    quoted = files.safe_name(name)
    assert 0 < len(quoted.encode()) <= files.MAX_NAME
    assert "/" not in quoted
    assert " " not in quoted
    assert quoted[0] not in "._"
    if "~" not in quoted:
        assert files.name_of(quoted) == name


@given(NAMES, NAMES)
def test_different_names_stay_different(a: str, b: str) -> None:
    assert (files.safe_name(a) == files.safe_name(b)) == (a == b)


@pytest.mark.parametrize(
    "name",
    [".", "..", "_x", "a/b", "x" * 300, "é" * 300, "s3://b/k", "a=b", "", "%00", "\0", "%", "~a"],
)
def test_awkward_names_hold_a_file(tmp_path: Path, name: str) -> None:
    files.write_json(tmp_path / f"{files.safe_name(name)}.json", {"name": name})
    (written,) = tmp_path.glob("*.json")
    assert files.read_json(written) == {"name": name}


def test_a_failed_rewrite_keeps_the_good_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"x": [1, 2]})
    files.write_parquet(path, table)

    def fail(file: object) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write_atomic(path, fail)
    assert files.read_parquet(path).equals(table)
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]


def test_json_refuses_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        files.write_json(tmp_path / "x.json", {"v": float("nan")})
    assert not list(tmp_path.iterdir())


def test_read_json_of_missing_and_damaged_files_is_none(tmp_path: Path) -> None:
    assert files.read_json(tmp_path / "no" / "file.json") is None
    (tmp_path / "cut.json").write_text('{"a": ')
    assert files.read_json(tmp_path / "cut.json") is None
    (tmp_path / "list.json").write_text("[1]")
    assert files.read_json(tmp_path / "list.json") is None
