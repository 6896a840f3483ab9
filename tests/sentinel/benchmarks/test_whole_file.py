"""Task files are written whole, and a file that was replaced is read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_textcraft import SHA256, shapeless, write_recipes
from made_webshop import PRODUCTS, product, write_catalogue

from sentinel.benchmarks.alfworld import games
from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.registry import load
from sentinel.benchmarks.textcraft.recipes import load_folder
from sentinel.benchmarks.whole_file import write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "made" / "tasks.json"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new" * 100_000 + "\udc80")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_a_replaced_file_is_read_again_by_the_next_benchmark(tmp_path: Path) -> None:
    pytest.importorskip("bm25s", reason="the extra webshop is not installed")
    settings = {"name": "webshop", **write_catalogue(tmp_path)}
    first = load(settings)
    assert first.shop is load(settings).shop  # one index per process
    old = first.fingerprint()
    write_catalogue(tmp_path, [*PRODUCTS, product("B000000009", "Round Vase")])
    assert "B000000009" in load(settings).catalogue.by_asin
    assert "B000000009" not in first.catalogue.by_asin  # goals and pages stay of one catalogue
    assert (first.fingerprint(), load(settings).fingerprint() == old) == (old, False)


def test_a_changed_recipe_folder_is_refused_in_the_same_process(tmp_path: Path) -> None:
    folder = write_recipes(tmp_path / "recipes")
    assert load_folder(folder, SHA256) is load_folder(folder, SHA256)
    write_recipes(folder, {"lamp": shapeless("lamp", 1, "coal")})
    with pytest.raises(DataError, match=r"another version of the recipes \(11 files"):
        load_folder(folder, SHA256)


def test_lists_of_goals_and_games_are_written_whole(tmp_path: Path) -> None:
    pytest.importorskip("bm25s", reason="the extra webshop is not installed")
    shop = load({"name": "webshop", **write_catalogue(tmp_path)})
    game = games.GameFile("a/b", tmp_path / "game.tw-pddl", "0" * 64, "a", "look")
    for name, write in (
        ("goals.json", shop.freeze),
        ("games.json", lambda path: games.write_list({"a/b": game}, path, 0)),
    ):
        path = tmp_path / name
        write(path)
        wrote = path.read_text()
        path.write_text("old")
        with path.open() as reader:
            write(path)
            assert reader.read() == "old"
        assert path.read_text() == wrote
