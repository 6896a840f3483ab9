"""The pair of heads that leaves a run: both must read the same text."""

import json
from pathlib import Path

import pytest

from sentinel.errors import UserError
from sentinel.heads.config import HEADS
from sentinel.monitor.text_heads import contents, load


def pair(folder: Path, *encoders: str) -> dict[str, Path]:
    for name, encoder in zip(HEADS, encoders, strict=True):
        (folder / name).mkdir()
        head = {"kind": "encoder", "meta": {}, "config": {"encoder": encoder}}
        (folder / name / "head.json").write_text(json.dumps(head))
    return {name: folder / name for name in HEADS}


def test_heads_of_two_encoders_are_no_pair(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the two heads read with different encoders"):
        contents(pair(tmp_path, "nano:clinic", "nano:craft"))


def test_a_head_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folders = pair(tmp_path, "nano:clinic", "nano:clinic")
    (folders[HEADS[0]] / "head.json").write_text("{")
    with pytest.raises(UserError, match=f"head {folders[HEADS[0]]} cannot be read"):
        contents(folders)


@pytest.mark.parametrize("kinds", [("tfidf", "encoder"), ("pickle", "pickle")])
def test_heads_of_kinds_that_do_not_go_together_are_refused(
    tmp_path: Path, kinds: tuple[str, str]
) -> None:
    manifest = {"heads": {n: {"kind": k} for n, k in zip(HEADS, kinds, strict=True)}}
    with pytest.raises(UserError, match="heads that this version does not know"):
        load(tmp_path, manifest)
