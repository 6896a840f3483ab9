"""Model folders, as every local engine reads them: where one is, its tokenizer, ends and identity.

No torch here: the checks before a run read the same folders.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.engines import weights_folder
from sentinel.agent.chat import ChatEncoder
from sentinel.errors import UserError

END_TOKENS = ("<|end|>", "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<end_of_turn>", "</s>")
PATTERNS = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")
"""Files of a hub model that an engine reads."""


def model_folder(agent: Mapping[str, Any]) -> Path:
    """The folder of an agent's `model`: a path, `nano:NAME`, or a hub id, which is fetched.

    Raises UserError for a folder without weights and for a hub model that cannot be had.
    """
    model = str(agent["model"])
    folder = weights_folder(model)
    return folder if folder is not None else fetched(model, agent.get("revision"))


def fetched(model: str, revision: Any = None, *, only: tuple[str, ...] = PATTERNS) -> Path:
    """The local snapshot of a hub model; what of it is missing here is fetched first.

    Raises UserError that names why not: no such model, a gate, no network.
    """
    from huggingface_hub import snapshot_download

    wanted = None if revision is None else str(revision)
    try:
        return Path(snapshot_download(model, revision=wanted, allow_patterns=list(only)))
    except Exception as error:  # the hub's own errors, and those of every layer below it
        raise unreachable(model, error) from error


def unreachable(model: str, error: Exception) -> UserError:
    """What an error of the hub means for its user."""
    kinds = {c.__name__ for c in type(error).__mro__}
    if "GatedRepoError" in kinds:
        return UserError(
            f"model {model} is gated: its licence is not accepted by this account, or nobody is "
            "logged in",
            f"accept it at https://huggingface.co/{model} and run: hf auth login",
        )
    if kinds & {"RepositoryNotFoundError", "RevisionNotFoundError", "HFValidationError"}:
        what = "revision" if "RevisionNotFoundError" in kinds else "model"
        return UserError(
            f"{model}: the hub has no such {what}, or it is private",
            "correct the name, or run: hf auth login",
        )
    return UserError(
        f"model {model} is not in the local cache and the hub cannot be reached "
        f"({type(error).__name__})",
        f"fetch it where there is a network: hf download {model}  (gated: hf auth login first), "
        "or name a folder that holds it",
    )


def chat_encoder(agent: Mapping[str, Any], folder: Path) -> ChatEncoder:
    """The encoder of an agent's conversations. Raises UserError where the folder has none."""
    model = str(agent["model"])
    if model.startswith("nano:") and not (folder / "tokenizer.json").is_file():
        from sentinel.nano import tokenizer_dir, world_of

        folder = tokenizer_dir(world_of(model.removeprefix("nano:")))
    return ChatEncoder.from_folder(
        folder, agent.get("chat_template_file"), agent.get("template_kwargs")
    )


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none."""
    if not file.is_file():
        return {}
    data = json.loads(file.read_text(encoding="utf-8"))
    return data if isinstance(data, dict) else {}


def end_ids(folder: Path, encoder: ChatEncoder) -> list[int]:
    """Ids that end a turn: of both configs, and of the tokenizer's control tokens."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        ids = read_json(folder / name).get("eos_token_id")
        found |= set([ids] if isinstance(ids, int) else ids or [])
    for token in (*END_TOKENS, encoder.special_tokens.get("eos_token", "")):
        number = encoder.control_id(token)
        if number is not None:
            found.add(number)
    return sorted(found)


def identity(folder: Path) -> str:
    """Twelve digits that name the weights: a hub snapshot's commit, else a hash of the files."""
    if folder.parent.name == "snapshots":
        return folder.name[:12]
    state = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as handle:
            state.update(hashlib.file_digest(handle, "sha256").digest())
    return state.hexdigest()[:12]
