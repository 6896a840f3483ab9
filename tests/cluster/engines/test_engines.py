from __future__ import annotations

from pathlib import Path

import pytest

from cluster.engines import KINDS, agent_hash, make_engine, weights_folder
from sentinel.errors import UserError


def agent(folder: Path, **more: object) -> dict[str, object]:
    return {"name": "a", "engine": "transformers", "model": str(folder), **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("kind", ["vllm", "openai", "nonsense"])
def test_engines_that_do_not_exist_are_named(kind: str) -> None:
    if kind in KINDS:
        pytest.skip(f"{kind} exists")
    with pytest.raises(UserError, match=f"engine {kind} is not available"):
        make_engine({"name": "a", "engine": kind, "model": "m"})


def test_the_hash_covers_weights_and_settings_but_not_the_place(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    first = agent_hash(agent(folder))
    assert agent_hash(agent(folder, device="cuda", tensor_parallel=2, max_tokens=9)) == first
    assert agent_hash({**agent(folder), "name": "b"}) == first
    assert agent_hash(agent(folder, dtype="float16")) != first
    moved = tmp_path_factory.mktemp("moved")
    for path in folder.iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    assert agent_hash(agent(moved)) == first, "the same weights elsewhere"
    (folder / "RECIPE.json").write_text("{}")
    assert agent_hash(agent(folder)) == first
    (folder / "model.safetensors").write_bytes(b"other")
    assert agent_hash(agent(folder)) != first


def test_a_folder_without_weights_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no weights"):
        agent_hash(agent(tmp_path))
    with pytest.raises(UserError, match="holds no weights"):
        weights_folder(str(tmp_path / "missing"))
    assert weights_folder("org/model") is None
