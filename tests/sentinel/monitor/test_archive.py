"""What was not written with the folder is never read."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from sentinel.errors import UserError
from sentinel.monitor import archive, load

CONTENTS = {"policy.json": b"{}", "head/model.safetensors": b"\0" * 64}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    archive.write(tmp_path / "m", CONTENTS, {"kind": "sentinel"})
    return tmp_path / "m"


def test_what_was_written_is_read(folder: Path) -> None:
    found = archive.read(folder)
    assert found["kind"] == "sentinel"
    assert found["files"]["policy.json"]["bytes"] == 2
    assert found["hash"] == archive.content_hash({k: v for k, v in found.items() if k != "hash"})


def test_a_new_one_takes_the_place_of_the_old_one_whole(folder: Path) -> None:
    first = archive.read(folder)["hash"]
    assert archive.write(folder, {"other.json": b"1"}, {"kind": "sentinel"}) != first
    assert set(archive.read(folder)["files"]) == {"other.json"}
    assert [p.name for p in folder.parent.iterdir()] == ["m"]


def test_a_write_that_fails_leaves_the_old_one(folder: Path) -> None:
    before = archive.read(folder)
    with pytest.raises(FileNotFoundError):
        archive.write(folder, {"a.json": b"1", "b.json": folder / "none.json"}, {})
    assert archive.read(folder) == before
    assert [p.name for p in folder.parent.iterdir()] == ["m"]


def test_every_changed_byte_is_found(folder: Path) -> None:
    for path in [p for p in folder.rglob("*") if p.is_file()]:
        whole = path.read_bytes()
        for at in (0, len(whole) // 2, len(whole) - 2):
            changed = bytearray(whole)
            changed[at] ^= 1
            path.write_bytes(bytes(changed))
            with pytest.raises(UserError, match=r"changed|cannot be read|of format|holds|lists"):
                load(folder)
        path.write_bytes(whole[:-1] if path.name != archive.MANIFEST else whole[:-3])
        with pytest.raises(UserError, match=r"changed|cannot be read"):
            load(folder)
        path.write_bytes(whole)
    archive.read(folder)


class Bomb:
    def __reduce__(self) -> tuple:
        return (Path.touch, (Path("exploded"),))


def test_a_pickle_beside_the_files_is_refused(folder: Path, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("head/model.bin", "estimator.pkl", "policy.pt", "x"):
        (folder / name).write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(UserError, match="could run code"):
            load(folder)
        (folder / name).unlink()
    assert not Path("exploded").exists()


def relisted(folder: Path, **files: dict) -> None:
    """A manifest that also lists these files, with a hash that fits."""
    content = json.loads((folder / archive.MANIFEST).read_text())
    del content["hash"]
    content["files"] |= files
    content["hash"] = archive.content_hash(content)
    (folder / archive.MANIFEST).write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["weights.bin", "../out.json", "/etc/hosts.json", "a//b.json"])
def test_a_manifest_that_lists_what_is_never_read_is_refused(folder: Path, name: str) -> None:
    (folder / "weights.bin").write_bytes(b"\x80\x04N.")
    relisted(folder, **{name: {"sha256": "0" * 64, "bytes": 4}})
    with pytest.raises(UserError, match=r"could run code|not a name within"):
        load(folder)


def test_files_that_lack_or_belong_elsewhere_are_named(folder: Path, tmp_path: Path) -> None:
    (folder / "notes.json").write_text("{}")
    with pytest.raises(UserError, match=r"an unknown file: notes\.json"):
        load(folder)
    (folder / "notes.json").unlink()
    (folder / "policy.json").rename(tmp_path / "policy.json")
    with pytest.raises(UserError, match=r"lacks policy\.json"):
        load(folder)
    (folder / "policy.json").symlink_to(tmp_path / "policy.json")
    with pytest.raises(UserError, match="no plain file"):
        load(folder)


def test_another_format_or_kind_is_refused(folder: Path, monkeypatch) -> None:
    archive.write(folder, CONTENTS, {"kind": "oracle"})
    with pytest.raises(UserError, match="kind oracle"):
        load(folder)
    monkeypatch.setattr(archive, "FORMAT", 2)
    with pytest.raises(UserError, match="of format 1, this version reads 2"):
        load(folder)


def test_a_folder_that_is_no_monitor_is_told_where_one_is(folder: Path) -> None:
    with pytest.raises(UserError, match="is no monitor") as error:
        load(folder.parent)
    assert str(folder) in str(error.value)
    with pytest.raises(UserError, match="is no monitor"):
        load(folder.parent / "nothing")


def test_only_plain_names_and_kinds_are_written(tmp_path: Path) -> None:
    for name in ("a.pkl", "../a.json", archive.MANIFEST):
        with pytest.raises(ValueError):
            archive.write(tmp_path / "m", {name: b""}, {})
    assert not [*tmp_path.iterdir()]
