"""Every embedded world has its own tokenizer; agents and text heads find theirs by name."""

import pytest

from sentinel import nano
from sentinel.errors import UserError
from sentinel.heads.config import HeadConfig


def test_every_world_ships_a_whole_tokenizer() -> None:
    assert "clinic" in nano.worlds()
    for world in nano.worlds():
        folder = nano.tokenizer_dir(world)
        assert (folder / "tokenizer.json").is_file()
        assert (folder / "tokenizer_config.json").is_file()


def test_an_agent_names_its_world() -> None:
    assert nano.world_of("clinic-sage") == "clinic"
    assert nano.tokenizer_dir() == nano.tokenizer_dir("clinic")


def test_a_world_without_tokenizer_is_named() -> None:
    with pytest.raises(UserError, match=r"no nano tokenizer of world 'sea' .shipped: clinic"):
        nano.tokenizer_dir("sea")


def test_heads_read_with_the_benchmarks_tokenizer_or_the_hospitals() -> None:
    assert [nano.text_world(kind) for kind in ("clinic", "ehrsql")] == ["clinic", "clinic"]
    for world in nano.worlds():
        assert nano.text_world(world) == world


def test_encoder_names_a_world() -> None:
    worlds = {e: HeadConfig(encoder=e).nano_world for e in ("nano", "nano:craft", "a/b", "/x")}
    assert worlds == {"nano": "clinic", "nano:craft": "craft", "a/b": None, "/x": None}
