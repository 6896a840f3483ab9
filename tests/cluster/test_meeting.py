from __future__ import annotations

import os
import stat
from pathlib import Path

from cluster.meeting import End, Head, Meeting

HEAD = Head("10.0.0.1:20000", "a" * 64)


def test_the_token_is_for_its_user_alone_and_goes_with_the_end(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        meeting = Meeting(tmp_path, "7-0")
        meeting.open(HEAD)
    finally:
        os.umask(old)
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert meeting.head() == HEAD
    assert meeting.ended() is None
    meeting.end(End(3))
    assert meeting.head() is None
    assert meeting.ended() == End(3)
    assert not any(HEAD.token in p.read_text() for p in tmp_path.iterdir())


def test_an_earlier_life_is_not_believed(tmp_path: Path) -> None:
    earlier = Meeting(tmp_path, "7-0")
    earlier.open(HEAD)
    earlier.fault(1, "no disk")
    now = Meeting(tmp_path, "7-1")
    assert (now.head(), now.ended(), now.faults()) == (None, None, {})
    earlier.end(End(0))
    assert now.ended() is None
    # A life whose name begins like another's.
    Meeting(tmp_path, "7-0-1").fault(3, "x")
    assert earlier.faults() == {1: "no disk"}


def test_half_a_file_is_none(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, "7-0")
    (tmp_path / "ray-7-0-head.json").write_text('{"address": "10.')
    assert meeting.head() is None
    meeting.open(HEAD)
    assert meeting.head() == HEAD


def test_an_end_without_a_head(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path, "7-0")
    meeting.end(End(1, "the head failed"))
    assert meeting.ended() == End(1, "the head failed")


def test_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert Meeting(tmp_path / "late", "7-0").head() is None
