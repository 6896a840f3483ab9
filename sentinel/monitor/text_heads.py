"""The frozen heads of a monitor: text in, float64 logits out, nothing fetched from anywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentinel.errors import UserError
from sentinel.heads.config import HEADS, HeadFailure
from sentinel.monitor.archive import AGAIN

if TYPE_CHECKING:
    from sentinel.heads.live import LiveHeads, LiveTfidf
    from sentinel.heads.tokens import Specials

TOKENIZER = "tokenizer/tokenizer.json"
FILES = ("head.json", "model.safetensors")
"""What a head's folder holds, whichever its kind."""


@dataclass(frozen=True)
class TextHeads:
    """`live` reads the heads `names`, in that order; None where no head was fitted at all."""

    names: tuple[str, ...]
    live: LiveHeads | LiveTfidf | None

    def episode(self) -> Reading:
        """The heads on one episode, which remembers the lines that it has read."""
        return Reading(self.names, None if self.live is None else self.live.episode())


class Reading:
    """One episode's prefixes through the heads."""

    def __init__(self, names: Sequence[str], live: Any) -> None:
        self._names = names
        self._live = live

    def logits(self, text: str) -> dict[str, float]:
        """Raw logit of each head; NaN, which passes every gate, where there is no head, or the
        head's value is not finite."""
        out = dict.fromkeys(HEADS, float("nan"))
        if self._live is not None:
            with suppress(HeadFailure):
                out |= dict(zip(self._names, map(float, self._live.score(text)), strict=True))
        return out


def contents(folders: Mapping[str, Path]) -> tuple[dict[str, bytes | Path], dict[str, Any]]:
    """Files of the heads for an archive, by name, and what a reader needs to know of them.

    `folders`: head → the folder its fit left. Raises UserError for one that cannot be read.
    """
    out: dict[str, bytes | Path] = {}
    facts: dict[str, Any] = {"heads": {}, "specials": None}
    encoder: str | None = None
    for name, folder in folders.items():
        try:
            head = json.loads((folder / "head.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"head {folder} cannot be read: {error}", "run: sentinel heads") from (
                error
            )
        kind = head.get("kind", "encoder")
        facts["heads"][name] = {"kind": kind, "meta": head["meta"]}
        out |= {f"{name}/{file}": folder / file for file in FILES}
        if kind == "encoder":
            facts["heads"][name]["config"] = head["config"]
            if encoder not in (None, head["config"]["encoder"]):
                raise UserError("the two heads read with different encoders", "run: sentinel heads")
            encoder = head["config"]["encoder"]
    if encoder is not None:
        from sentinel.heads.config import HeadConfig
        from sentinel.heads.model import head_tokenizer

        config = next(f["config"] for f in facts["heads"].values() if "config" in f)
        tokenizer, specials = head_tokenizer(HeadConfig.of(config))
        out[TOKENIZER] = tokenizer.to_str().encode()
        facts["specials"] = _specials(specials)
    return out, facts


def load(folder: Path, manifest: Mapping[str, Any], device: str = "cpu") -> TextHeads:
    """The heads of an archive that was checked; raises UserError where they do not fit it."""
    from sentinel.heads.live import LiveHeads, LiveTfidf

    names = tuple(name for name in HEADS if name in manifest["heads"])
    kinds = {fact["kind"] for fact in manifest["heads"].values()}
    if set(names) != set(manifest["heads"]) or not kinds <= {"tfidf", "encoder"} or len(kinds) > 1:
        raise UserError(f"monitor {folder} has heads that this version does not know", AGAIN)
    if not names:
        return TextHeads((), None)
    if kinds == {"tfidf"}:
        from sentinel.heads.tfidf import TfidfHead

        return TextHeads(names, LiveTfidf([TfidfHead.load(folder / name)[0] for name in names]))
    from sentinel.heads.model import load_head

    found = [load_head(folder / name) for name in names]
    windows = {config.max_score_tokens for _, config, _ in found}
    if len(windows) != 1 or manifest["specials"] is None:
        raise UserError(f"monitor {folder} has heads that do not read the same text", AGAIN)
    models = [model.to(device) for model, _, _ in found]
    tokenizer, specials = _tokenizer(folder, manifest["specials"])
    return TextHeads(names, LiveHeads(models, tokenizer, specials, windows.pop(), device=device))


def _tokenizer(folder: Path, known: Mapping[str, Any]) -> tuple[Any, Specials]:
    from tokenizers import Tokenizer

    from sentinel.heads.tokens import with_specials

    try:
        read = Tokenizer.from_str((folder / TOKENIZER).read_text(encoding="utf-8"))
    except Exception as error:  # the library raises nothing narrower
        raise UserError(f"the tokenizer of {folder} cannot be read: {error}", AGAIN) from error
    padding = read.id_to_token(known["pad"])
    tokenizer, specials = with_specials(read, str(folder), padding)
    if _specials(specials) != known:
        raise UserError(
            f"the tokenizer of {folder} closes texts with {_specials(specials)}, not {known}",
            AGAIN,
        )
    return tokenizer, specials


def _specials(specials: Specials) -> dict[str, Any]:
    return {"before": [*specials.before], "after": [*specials.after], "pad": specials.pad}
