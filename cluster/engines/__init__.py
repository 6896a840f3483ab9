"""Engines by kind. Importing this loads none of them; no engine imports Ray."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster import files
from sentinel.engine import Engine
from sentinel.errors import UserError

KINDS = {
    "openai": "cluster.engines.openai:make",
    "policy": "cluster.engines.policy:make",
    "transformers": "cluster.engines.transformers:make",
    "vllm": "cluster.engines.vllm:make",
}
"""Kind → `module:function` that takes the agent's config and returns an Engine."""
CHECKS = {
    "openai": "cluster.engines.openai:check",
    "policy": "cluster.engines.policy:check",
    "transformers": "cluster.engines.fit:check",
    "vllm": "cluster.engines.fit:check",
}
"""Kind → `module:function` that raises UserError for what can be known before a run begins."""
UNHASHED = frozenset(
    {"name", "benchmarks", "device", "tensor_parallel", "api_key_env", "max_tokens"}
    | {"price", "concurrency", "request_timeout", "budget_usd", "spend_dir"}
    | {"gpu_memory_utilization", "kv_cache_gb", "enforce_eager", "max_batch"}
    | {"distributed_executor_backend"}
)
"""Settings that say where an agent runs, never what it answers (the token limit is hashed by the
collection, which may set it)."""


def make_engine(agent: Mapping[str, Any]) -> Engine:
    """The engine of an agent's config.

    Besides the kinds above, `engine: custom` with `factory: "module:function"` takes any importable
    factory. Raises UserError for a kind that is not available.
    """
    kind = str(agent.get("engine"))
    target = str(agent.get("factory", "")) if kind == "custom" else KINDS.get(kind)
    if not target or ":" not in target:
        raise UserError(
            f"agent {agent.get('name')}: engine {kind} is not available in this version",
            f"use one of: {', '.join(sorted(KINDS))}",
        )
    module, _, name = target.partition(":")
    engine: Engine = getattr(importlib.import_module(module), name)(agent)
    return engine


async def start_engine(agent: Mapping[str, Any]) -> Engine:
    """`make_engine` without blocking this loop, and awaited where a kind starts by a coroutine."""
    engine: Any = await asyncio.to_thread(make_engine, agent)
    if inspect.isawaitable(engine):
        engine = await engine
    found: Engine = engine
    return found


def check_agent(agent: Mapping[str, Any]) -> None:
    """Raise UserError for whatever of an agent is known to fail before its engine is made."""
    target = CHECKS.get(str(agent.get("engine")))
    if target is not None:
        module, _, name = target.partition(":")
        getattr(importlib.import_module(module), name)(agent)


def agent_hash(agent: Mapping[str, Any]) -> str:
    """Hash of what an agent's answers depend on: its config and the weights it names.

    A local folder (or `nano:NAME`) is hashed file by file, a hub id by its name and revision.
    Raises UserError when a nano agent has no weights.
    """
    config = {k: v for k, v in agent.items() if k not in UNHASHED}
    if (template := config.get("chat_template_file")) is not None:
        config["chat_template_file"] = _template_hash(Path(str(template)))
    without = agent.get("engine") in ("openai", "policy")
    folder = None if without else weights_folder(str(agent["model"]))
    if folder is not None:
        config["model"] = "folder"
        config["weights"] = _folder_hash(folder)
    return files.digest(config)


def weights_folder(model: str) -> Path | None:
    """Folder of `nano:NAME` or of a local path; None for a hub id.

    Raises UserError for a folder without weights.
    """
    if model.startswith("nano:"):
        from sentinel.nano import weights_dir

        folder = Path(weights_dir(model.removeprefix("nano:")))
    elif model.startswith((".", "/", "~")) or Path(model).is_dir():
        folder = Path(model).expanduser().absolute()
    else:
        return None
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise UserError(
            f"agent folder {folder} holds no weights (model.safetensors)",
            "name another model, or train one: sentinel train-nano BENCHMARK_CONFIG",
        )
    return folder


def _template_hash(path: Path) -> str:
    try:
        return files.file_hash(path)
    except OSError as error:
        raise UserError(
            f"chat template {path} cannot be read: {error.strerror}",
            "mend chat_template_file in the agent's config",
        ) from error


def _folder_hash(folder: Path) -> str:
    state = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and _matters(p)):
        state.update(f"{path.relative_to(folder)}\0{files.file_hash(path)}\0".encode())
    return state.hexdigest()


def _matters(path: Path) -> bool:
    # Recipes, read-me files and hidden files describe a model; they do not change its answers.
    return path.suffix in (".safetensors", ".bin", ".json", ".txt", ".model", ".jinja") and not (
        path.name.startswith(".") or path.name.upper().startswith(("RECIPE", "README"))
    )
