"""What `sentinel plan` says of heads on a pretrained encoder: memory and hours on kinds of GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.forecast import AgentSize
    from jobs.config import RunConfig


def heads_on_gpus(config: RunConfig, sizes: Sequence[AgentSize]) -> list[dict[str, Any]]:
    """A row per kind of device; empty for TF–IDF and nano heads, which need none.

    The encoder's config is read where this machine has it, and nothing is downloaded: the shape of
    ModernBERT-base stands in for one that is not here, and the rows say so.
    """
    from cluster.encoder_cost import CHARS_PER_TOKEN, Work, measure, predict

    found = encoder(config)
    if found is None:
        return []
    shape, basis = found
    heads = config.heads.model_dump()
    train = 1 - config.pools.calibration - config.pools.heldout
    work = [
        Work(
            train * size.episodes,
            size.episodes,
            size.pilot.turns.mean + 1,
            tuple(chars / CHARS_PER_TOKEN for chars in size.pilot.prefix_chars),
        )
        for size in sizes
    ]
    rows = predict(measure(shape, config.heads.encoder), work, heads)
    told = f"{basis}; {CHARS_PER_TOKEN:g} characters a token, {100 * rows[0]['mfu']:.0f} % of peak"
    return [{**row, "basis": f"FLOPs measured, {told}"} for row in rows]


def encoder(config: RunConfig) -> tuple[Any, str] | None:
    """The pretrained encoder's config and where it is from; None where the heads need none.

    Raises UserError for one that cannot be trained as configured.
    """
    from sentinel.heads.config import HeadConfig
    from sentinel.heads.encoders import check_shape

    settings = HeadConfig.of(config.heads.model_dump())
    if settings.kind == "tfidf" or settings.nano_world is not None or "heads" not in config.stages:
        return None
    shape, basis = _shape(settings.encoder)
    check_shape(shape, settings)
    return shape, basis


def _shape(encoder: str) -> tuple[Any, str]:
    from sentinel.heads.encoders import encoder_shape

    try:
        return encoder_shape(encoder, local=True), "on the encoder's own config"
    except UserError:
        if encoder.startswith((".", "/", "~")):
            raise
        from transformers import ModernBertConfig

        return ModernBertConfig(), f"config of {encoder} not here: ModernBERT-base's shape"


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The rows for a terminal."""
    from cluster.progress import duration

    if not rows:
        return []
    out = ["", f"{'heads on':18} {'time':>8} {'a fit':>9} {'rows at once':>12}"]
    for r in rows:
        if r["hours"] is None:
            length = f"{r['fit_gb']:.1f} GB"
            out.append(
                f"{r['name']:18} {'-':>8} {length:>9}  not one row fits: use a shorter window"
            )
            continue
        out.append(
            f"{r['name']:18} {duration(3600 * r['hours']):>8} {r['fit_gb']:6.1f} GB "
            f"{r['micro_batch']:12}"
        )
    fits = f"{rows[0]['fits']} fits of {rows[0]['encoder']}, {rows[0]['flops']:.2g} FLOPs"
    return [*out, f"  {fits}. {rows[0]['basis']}"]
