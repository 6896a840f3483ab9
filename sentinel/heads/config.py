"""Settings of a text head, and why a fit can stop. Plain data: no torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

ANSWERABILITY = "answerability"
CORRECTNESS = "correctness"
HEADS = (ANSWERABILITY, CORRECTNESS)
"""One logit each; positive = *un*answerable for the first, correct for the second."""
SHARED = "shared"
"""Both logits over one encoder: a variant, reported beside the pair and never in its place."""


class HeadFailure(Exception):
    """One fit cannot go on (one class, no rows, a non-finite loss); the others do."""


@dataclass(frozen=True)
class HeadConfig:
    """How a head is built, trained and read.

    `encoder` is `nano` or `nano:WORLD` (a ModernBERT of `width` × `layers`, from scratch, with the
    tokenizer of an embedded world, by default the hospital's), a folder, or a hub id;
    `kind` is `encoder` or `tfidf` (TF–IDF with a logistic regression, the cheap baseline). Windows
    are in tokens, special tokens included; longer prefixes lose their *beginning*. `prefixes`
    snapshots per episode and epoch are drawn uniformly (None: all): each keeps equal weight. The
    defaults suit the nano encoder; a pretrained one wants about 3 epochs at 5e-5. `token_dropout`
    is the share of training tokens that are hidden anew in every batch. `dtype` bfloat16 multiplies
    in bfloat16 and keeps weights and optimiser in float32. `micro_batch` rows at most go through
    the encoder at once in training (None: the whole batch); gradients of a batch are accumulated.
    """

    kind: Literal["encoder", "tfidf"] = "encoder"
    encoder: str = "nano"
    width: int = 64
    layers: int = 2
    pooling: Literal["mean", "cls", "mean-max"] = "mean-max"
    epochs: int = 6
    batch_size: int = 16
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    warmup: float = 0.1
    clip: float = 1.0
    dropout: float = 0.1
    token_dropout: float = 0.0
    class_weights: Literal["balanced", "none"] = "balanced"
    prefixes: int | None = 1
    stop_on: Literal["auroc", "loss"] = "auroc"
    patience: int = 3
    validation: float = 0.1
    max_train_tokens: int = 2048
    max_score_tokens: int = 4096
    dtype: Literal["float32", "bfloat16"] = "float32"
    micro_batch: int | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> HeadConfig:
        """From a wider mapping, such as the `heads` section of a run: unknown keys are left out."""
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in settings.items() if k in known})

    @property
    def nano_world(self) -> str | None:
        """Whose tokenizer a nano encoder has; None for an encoder that is not nano."""
        name, _, world = self.encoder.partition(":")
        return (world or "clinic") if name == "nano" else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)
