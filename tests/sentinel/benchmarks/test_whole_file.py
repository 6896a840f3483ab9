"""Task files are written whole: who reads the old one reads all of it, and nothing is left over."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_webshop import write_catalogue

from sentinel.benchmarks.alfworld import games
from sentinel.benchmarks.registry import load
from sentinel.benchmarks.whole_file import write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "made" / "tasks.json"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new" * 100_000 + "\udc80")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_lists_of_goals_and_games_are_written_whole(tmp_path: Path) -> None:
    pytest.importorskip("bm25s", reason="the extra webshop is not installed")
    shop = load({"name": "webshop", **write_catalogue(tmp_path)})
    game = games.GameFile("a/b", tmp_path / "game.tw-pddl", "0" * 64, "a", "look")
    for name, write in (
        ("goals.json", shop.freeze),
        ("games.json", lambda path: games.write_list({"a/b": game}, path)),
    ):
        path = tmp_path / name
        write(path)
        wrote = path.read_text()
        path.write_text("old")
        with path.open() as reader:
            write(path)
            assert reader.read() == "old"
        assert path.read_text() == wrote
