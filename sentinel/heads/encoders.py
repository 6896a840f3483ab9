"""What an encoder is made for, read from its config and tokenizer before anything is trained.

Any Hugging Face sequence encoder serves a head. Those that cannot (no padding token, fewer
positions than the windows ask for, a vocabulary smaller than its tokenizer's) are refused here,
where no weight has been loaded yet.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sentinel.errors import UserError
from sentinel.heads.config import HeadConfig

OFFSET = frozenset(
    {
        "camembert",
        "data2vec-text",
        "esm",
        "ibert",
        "lilt",
        "longformer",
        "luke",
        "markuplm",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    }
)
"""Model types that number positions from padding id + 1: of 514 positions 512 hold tokens."""


def check_encoder(config: HeadConfig) -> None:
    """Raise UserError where a head with this encoder could not be trained as configured."""
    if config.kind == "tfidf" or config.nano_world is not None:
        return
    from sentinel.heads.model import head_tokenizer

    shape = encoder_shape(config.encoder)
    check_shape(shape, config)
    tokenizer, specials = head_tokenizer(config)
    largest = max((tokenizer.get_vocab_size() - 1, specials.pad))
    if largest >= shape.vocab_size:
        raise UserError(
            f"encoder {config.encoder!r} embeds {shape.vocab_size} tokens, its tokenizer has "
            f"{largest + 1}",
            "name a folder whose tokenizer and weights belong together",
        )


def encoder_shape(name: str, *, local: bool = False) -> Any:
    """The transformers config of a folder or hub id; `local`: as far as this machine has it.

    Raises UserError where there is none, or where it cannot be reached.
    """
    from transformers import AutoConfig

    if (name.startswith((".", "/", "~")) or Path(name).is_dir()) and not (
        Path(name) / "config.json"
    ).is_file():
        raise UserError(f"no config.json in encoder folder {name}", "check heads.encoder")
    try:
        return AutoConfig.from_pretrained(name, local_files_only=local)
    except (OSError, ValueError, KeyError) as error:
        cause = str(error).strip().splitlines()[0]
        raise UserError(
            f"encoder {name!r} cannot be had: {cause}",
            "check heads.encoder, or name a folder that holds the model",
        ) from error


def check_shape(shape: Any, config: HeadConfig) -> None:
    """Raise UserError for a model that is no sequence encoder or reads less than its windows."""
    if getattr(shape, "is_encoder_decoder", False):
        raise UserError(
            f"encoder {config.encoder!r} is an encoder with a decoder ({shape.model_type})",
            "name an encoder alone, such as ModernBERT, DistilBERT or a MiniLM",
        )
    window = window_of(shape)
    wanted = max(config.max_train_tokens, config.max_score_tokens)
    if window is not None and window < wanted:
        raise UserError(
            f"encoder {config.encoder!r} reads {window} tokens, {wanted} are configured",
            f"set heads.max_train_tokens and heads.max_score_tokens to at most {window}",
        )


def window_of(shape: Any) -> int | None:
    """Tokens that an encoder can read at once, specials included; None where there is no limit."""
    positions = getattr(shape, "max_position_embeddings", None)
    if positions is None or positions < 0:
        return None
    if shape.model_type in OFFSET:
        return int(positions) - int(shape.pad_token_id or 0) - 1
    return int(positions)


def padding_token(folder: Path) -> str | None:
    """The padding token that a folder's tokenizer files name; None where none does."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        try:
            found = json.loads((folder / name).read_text(encoding="utf-8")).get("pad_token")
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(found, dict):
            found = found.get("content")
        if isinstance(found, str):
            return found
    return None
