"""A model's residual stream at a few tokens (a torch room).

Hooks on the decoder blocks copy the wanted rows out of each block's output; the output itself goes
when the next block has read it. No logits are computed, nothing above the deepest wanted block is
run, and so memory grows with turns × layers, not with tokens.

Batches are padded on the right and run without a mask: under causal attention no token sees what
comes after it, so a padded batch gives what each pass alone would give.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors import SafetensorError

from sentinel.activations.packing import pack, padding
from sentinel.activations.positions import Pass
from sentinel.errors import UserError

LARGEST = float(torch.finfo(torch.float16).max)
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_UNREADABLE = (SafetensorError, OSError, ValueError, RuntimeError, KeyError)


@dataclass(frozen=True, slots=True)
class Shape:
    """L blocks, the width d of the residual stream, and the longest sequence that may be run."""

    layers: int
    width: int
    window: int


@dataclass(frozen=True, eq=False, slots=True)
class Backbone:
    """A decoder without its language-model head, ready to run."""

    model: Any
    blocks: Sequence[torch.nn.Module]
    shape: Shape


@dataclass(frozen=True, eq=False, slots=True)
class Gathered:
    """Rows in the order of passes and, within one, of its rounds.

    `vectors` (rows, layers, d) float16; `defined` (rows, layers) is False where the model gave a
    NaN or an infinity, and the vector there is zero. `clipped` counts finite values beyond ±65504,
    which are stored as that. `tokens` were run, of which the share `padding` besides was padding.
    """

    vectors: NDArray[np.float16]
    defined: NDArray[np.bool_]
    clipped: int
    tokens: int
    padding: float


def read_shape(folder: Path) -> Shape:
    """The shape of a model from its `config.json` alone; no weights are read.

    Raises UserError where the folder holds no decoder that transformers knows by itself (code that
    comes with a model is never run).
    """
    try:
        config = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        return _shape(config)
    except (*_UNREADABLE, AttributeError) as error:
        raise UserError(
            f"{folder} is no decoder that can be read: {error}",
            "name a model of an architecture that transformers has built in",
        ) from error


def load_backbone(folder: Path, dtype: str = "float32", device: str = "cpu") -> Backbone:
    """The decoder of a folder of config.json and safetensors, computing in `dtype` on `device`.

    Raises UserError when it cannot be loaded; code that comes with a model is never run.
    """
    if dtype not in DTYPES:
        raise UserError(f"unknown dtype {dtype}", f"use one of: {', '.join(DTYPES)}")
    transformers.utils.logging.disable_progress_bar()  # a model loads in a worker, unwatched
    library = logging.getLogger("transformers")
    before = library.level
    library.setLevel(logging.ERROR)  # it would report the head, which is left out on purpose
    try:
        model = transformers.AutoModel.from_pretrained(
            folder,
            dtype=DTYPES[dtype],
            attn_implementation="sdpa",
            local_files_only=True,
            trust_remote_code=False,
        ).to(device)
    except torch.cuda.OutOfMemoryError as error:
        raise UserError(
            f"{folder} does not fit on {device} in {dtype}", "use a larger device"
        ) from error
    except _UNREADABLE as error:
        raise UserError(f"{folder} cannot be loaded: {error}", "copy the model again") from error
    finally:
        library.setLevel(before)
    return backbone(model)


def backbone(model: Any) -> Backbone:
    """A model in memory, made ready; a language-model head, if it has one, is left aside."""
    model = getattr(model, "base_model", model).eval()
    shape = _shape(model.config)
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == shape.layers:
            return Backbone(model, tuple(module), shape)
    raise UserError(
        f"{type(model).__name__} has no list of {shape.layers} decoder blocks",
        "name a decoder such as Llama, Qwen2, Qwen3 or Phi-3",
    )


def check_layers(layers: Sequence[int], shape: Shape) -> None:
    """Raise UserError for layers that the model does not have, naming those it has."""
    wrong = [k for k in layers if not 1 <= k <= shape.layers]
    if wrong or not layers:
        raise UserError(
            f"no layer {', '.join(map(str, wrong)) or 'named'}: layer k is the output of block k, "
            f"and this model has blocks 1…{shape.layers}",
            f"set activations.layers to sweep, or to ids from 1 to {shape.layers}",
        )


@torch.inference_mode()
def extract(
    found: Backbone, passes: Sequence[Pass], layers: Sequence[int], tokens_per_batch: int = 16_384
) -> Gathered:
    """The residual stream after the blocks `layers` at every position of every pass.

    Raises UserError for a layer that does not exist, a pass longer than the model's window, an id
    that is not in its vocabulary, or a batch that the device's memory does not hold.
    """
    check_layers(layers, found.shape)
    _check_passes(found, passes)
    starts = np.cumsum([0, *(len(p.positions) for p in passes)])
    vectors = torch.zeros((int(starts[-1]), len(layers), found.shape.width), dtype=torch.float16)
    defined = np.zeros((len(vectors), len(layers)), dtype=bool)
    lengths = [len(p) for p in passes]
    batches = pack(lengths, tokens_per_batch)
    clipped = 0
    for batch in batches:
        members = [passes[i] for i in batch]
        rows = torch.cat([torch.arange(starts[i], starts[i + 1]) for i in batch])
        try:
            gathered = _run(found, members, layers)
        except torch.cuda.OutOfMemoryError as error:
            raise UserError(
                f"a batch of {len(members)} × {len(members[0])} tokens does not fit on the device",
                f"set activations.tokens_per_batch below {tokens_per_batch}",
            ) from error
        # In bfloat16 the largest float16 would round up to one that does not exist.
        gathered = gathered.to(torch.promote_types(gathered.dtype, torch.float32))
        good = torch.isfinite(gathered).all(-1)
        gathered = torch.where(good[..., None], gathered, 0)
        clipped += int((gathered.abs() > LARGEST).sum())
        halves = gathered.clamp(-LARGEST, LARGEST).to(torch.float16)
        vectors[rows] = halves.cpu()
        defined[rows.numpy()] = good.cpu().numpy()
    return Gathered(vectors.numpy(), defined, clipped, sum(lengths), padding(lengths, batches))


class _Enough(Exception):
    """Raised by the hook of the deepest wanted block: those above it are not needed."""


def _run(found: Backbone, members: Sequence[Pass], layers: Sequence[int]) -> torch.Tensor:
    """(rows, layers, d) of one batch, in the model's dtype, on its device."""
    device = found.model.device
    ids = np.zeros((len(members), max(map(len, members))), dtype=np.int64)
    for row, member in enumerate(members):
        ids[row, : len(member)] = member.ids
    counts = [len(m.positions) for m in members]
    row_of = torch.from_numpy(np.repeat(np.arange(len(members)), counts)).to(device)
    column = torch.tensor([p for m in members for p in m.positions], device=device)
    kept: dict[int, torch.Tensor] = {}
    deepest = max(layers)

    def hook_of(layer: int) -> Any:
        def hook(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            if hidden.shape[:2] != ids.shape:
                raise RuntimeError(f"block {layer} gave {tuple(hidden.shape)} for {ids.shape}")
            kept[layer] = hidden[row_of, column]  # a copy: the whole output is not held
            if layer == deepest:
                raise _Enough

        return hook

    handles = [found.blocks[k - 1].register_forward_hook(hook_of(k)) for k in set(layers)]
    try:
        found.model(input_ids=torch.from_numpy(ids).to(device), use_cache=False)
    except _Enough:
        pass
    finally:
        for handle in handles:
            handle.remove()
    if kept.keys() != set(layers) or any(len(v) != sum(counts) for v in kept.values()):
        raise RuntimeError(f"{sum(counts)} rows of blocks {sorted(layers)} asked for, not found")
    return torch.stack([kept[k] for k in layers], dim=1)


def _check_passes(found: Backbone, passes: Sequence[Pass]) -> None:
    vocabulary = int(found.model.get_input_embeddings().weight.shape[0])
    for one in passes:
        if len(one) > found.shape.window:
            raise too_long(one.episode, len(one), found.shape.window)
        if len(one) and not 0 <= int(one.ids.min()) <= int(one.ids.max()) < vocabulary:
            raise UserError(
                f"episode {one.episode} has token ids outside the model's {vocabulary}",
                "name the model that made these episodes",
            )


def too_long(episode: str, tokens: int, window: int) -> UserError:
    """The error for an episode that the model cannot read at once."""
    return UserError(
        f"episode {episode} has {tokens} tokens, the model's window is {window}",
        "set activations.rounds lower, or collect again within the window",
    )


def _shape(config: Any) -> Shape:
    text = config.get_text_config()
    return Shape(
        int(text.num_hidden_layers), int(text.hidden_size), int(text.max_position_embeddings)
    )
