"""The classifier: any Hugging Face encoder, one pooled vector, one logit per target.

A torch room: imported inside functions only.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from sentinel.errors import UserError
from sentinel.heads.config import HeadConfig
from sentinel.heads.tokens import Specials, open_tokenizer, with_specials

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT = 1
BROKEN = (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError)


FLASH = "flash_attention_2"
PADDED = ("sdpa", "eager", "flex_attention")
UNPADDED = ("modernbert",)
"""Encoders that take rows end to end: rotary positions, and sequence bounds handed to attention."""


class HeadModel(nn.Module):
    """Encoder, pooling over the real tokens, dropout, linear layer to `outputs` logits."""

    def __init__(self, encoder: nn.Module, width: int, pooling: str, outputs: int, dropout: float):
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, outputs)
        self.unpadded = False
        """Whether batches go through the encoder without their padding (`attention`)."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(b, L) ids and bool mask, padded on the right → (b, outputs) logits."""
        if self.unpadded:
            hidden = self._end_to_end(ids, mask)
        else:
            hidden = self.encoder(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        # In half precision a logit has 8 bits, and thresholds would meet ties everywhere.
        with torch.autocast(ids.device.type, enabled=False):
            return self.out(self.dropout(self.norm(self._pooled(hidden, mask))))

    def _pooled(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = hidden.to(self.norm.weight.dtype)
        if self.pooling == "cls":
            return hidden[:, 0]
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1.0)
        if self.pooling == "mean-max":  # one telling token is not averaged away
            lowest = torch.finfo(hidden.dtype).min
            pooled = pooled + hidden.masked_fill(~mask.unsqueeze(-1), lowest).amax(1)
        return pooled

    def _end_to_end(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(b, L, width) states of a batch that the encoder reads as one row without padding."""
        lengths = mask.sum(1)
        longest = int(lengths.max())
        bounds = nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
        positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)[mask]
        states = self.encoder(
            input_ids=ids[mask][None],
            position_ids=positions[None],
            cu_seq_lens_q=bounds,
            cu_seq_lens_k=bounds,
            max_length_q=longest,
            max_length_k=longest,
        ).last_hidden_state[0]
        hidden = states.new_zeros((*ids.shape, states.shape[-1]))
        hidden[mask] = states
        return hidden


def fastest_attention(model: HeadModel, device: str) -> str:
    """`flash_attention_2` where its package, a CUDA device and the encoder allow it, else as built.

    transformers loads it for no model by itself.
    """
    from transformers.utils import is_flash_attn_2_available

    built = str(getattr(model.encoder.config, "_attn_implementation", "sdpa"))
    able = getattr(model.encoder, "_supports_flash_attn", False)
    if device.startswith("cuda") and able and is_flash_attn_2_available():
        return FLASH
    return built


@contextmanager
def attention(model: HeadModel, name: str) -> Iterator[None]:
    """Run a head with another attention for a while; it is set back afterwards.

    With flash-attention the encoder computes in bfloat16 (the weights stay as they are), and
    ModernBERT takes its batches without their padding; pooling and logits keep float32.
    """
    encoder: Any = model.encoder
    built, padded = encoder.config._attn_implementation, not model.unpadded
    half = contextlib.nullcontext()
    if name == FLASH and next(model.parameters()).dtype == torch.float32:
        half = torch.autocast(next(model.parameters()).device.type, torch.bfloat16)
    try:
        if name != built:
            encoder.set_attn_implementation(name)
        model.unpadded = name not in PADDED and encoder.config.model_type in UNPADDED
        with half:
            yield
    finally:
        model.unpadded = not padded
        if name != built:
            encoder.set_attn_implementation(built)


def head_tokenizer(config: HeadConfig) -> tuple[Tokenizer, Specials]:
    """The tokenizer of a head's encoder: the nano one, a folder's, or a hub id's."""
    if config.nano_world is not None:
        from sentinel.nano import tokenizer_dir

        return open_tokenizer(tokenizer_dir(config.nano_world))
    if Path(config.encoder).is_dir():
        return open_tokenizer(Path(config.encoder))
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(config.encoder, use_fast=True)
    except (OSError, ValueError) as error:
        raise UserError(
            f"no tokenizer for encoder {config.encoder!r}: {error}", "check the name"
        ) from error
    return with_specials(loaded.backend_tokenizer, config.encoder, loaded.pad_token)


def nano_config(config: HeadConfig, vocabulary: int, specials: Specials) -> Any:
    """ModernBERT's architecture, `width` × `layers`, two heads of the width, full attention."""
    from transformers import ModernBertConfig

    heads = max(1, config.width // 32)
    before = specials.before[0] if specials.before else specials.pad
    after = specials.after[-1] if specials.after else specials.pad
    return ModernBertConfig(
        vocab_size=vocabulary,
        hidden_size=config.width,
        intermediate_size=2 * config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=heads,
        max_position_embeddings=max(config.max_train_tokens, config.max_score_tokens),
        # windows here are hardly longer than ModernBERT's local attention
        layer_types=["full_attention"] * config.layers,
        initializer_range=0.05,
        pad_token_id=specials.pad,
        bos_token_id=before,
        cls_token_id=before,
        eos_token_id=after,
        sep_token_id=after,
    )


def build_model(
    config: HeadConfig, vocabulary: int, specials: Specials, outputs: int = 1
) -> HeadModel:
    """A fresh head. Raises UserError when the encoder reads less than the configured windows."""
    from transformers import AutoModel

    if config.nano_world is not None:
        encoder = AutoModel.from_config(
            nano_config(config, vocabulary, specials), attn_implementation="sdpa"
        )
    else:
        try:
            encoder = AutoModel.from_pretrained(config.encoder, dtype=torch.float32)
        except (OSError, ValueError) as error:
            raise UserError(f"no encoder {config.encoder!r}: {error}", "check the name") from error
    return _wrap(encoder, config, outputs)


def _wrap(encoder: nn.Module, config: HeadConfig, outputs: int) -> HeadModel:
    from sentinel.heads.encoders import check_shape

    shape: Any = encoder.config
    check_shape(shape, config)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # BERT's: unused here, and a weight without a gradient
    return HeadModel(encoder, shape.hidden_size, config.pooling, outputs, config.dropout)


def save_head(folder: Path, model: HeadModel, config: HeadConfig, meta: dict[str, Any]) -> None:
    """`model.safetensors` and `head.json` (settings, encoder config, outputs, provenance)."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()}
    save_file(state, folder / "model.safetensors")
    shape: Any = model.encoder.config
    content = {
        "format": FORMAT,
        "config": config.to_dict(),
        "encoder": json.loads(shape.to_json_string(use_diff=False)),
        "outputs": model.out.out_features,
        "meta": meta,
    }
    text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False)
    (folder / "head.json").write_text(text + "\n", encoding="utf-8")


def load_head(folder: Path) -> tuple[HeadModel, HeadConfig, dict[str, Any]]:
    """Inverse of `save_head`. Raises UserError for files that are missing or damaged."""
    from transformers import AutoConfig, AutoModel

    try:
        content = json.loads((folder / "head.json").read_text(encoding="utf-8"))
        config = HeadConfig(**content["config"])
        shape = AutoConfig.for_model(**content["encoder"])
        encoder = AutoModel.from_config(shape, attn_implementation="sdpa")
        model = _wrap(encoder, config, content["outputs"])
        model.load_state_dict(load_file(folder / "model.safetensors"))
    except BROKEN as error:
        raise UserError(f"head {folder} cannot be read: {error}", "run: sentinel heads") from error
    return model.eval(), config, content["meta"]
