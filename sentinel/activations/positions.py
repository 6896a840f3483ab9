"""Which tokens of an episode a probe reads, and the sequences that hold them.

Round r is read at the last generated token that the engine has run before the turn ended (the
abort cascade, "Scorers"): the last generated one where the model closed its turn, the last but one
where the token limit cut it off, because that last token was sampled and never run. A turn without
such a token has no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sentinel.errors import UserError


class TurnIds(Protocol):
    """What is read of a turn; `sentinel.episodes.Turn` has it."""

    @property
    def turn(self) -> int:
        """1…T."""
        ...

    @property
    def prompt_ids(self) -> Sequence[int] | None:
        """The whole prompt, or what it adds to the last turn's prompt and generation."""
        ...

    @property
    def prompt_is_full(self) -> bool:
        """Whether `prompt_ids` is the whole prompt."""
        ...

    @property
    def generated_ids(self) -> Sequence[int] | None:
        """Ids the engine produced, end-of-turn excluded."""
        ...

    @property
    def finish_reason(self) -> str:
        """`length` where the token limit ended the turn."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Pass:
    """One forward pass: `ids` (n,) int32, and the 0-based position of each of its rounds.

    `ids` ends at the last position that is read: nothing after it can change what is found there.
    """

    episode: str
    ids: NDArray[np.int32]
    rounds: tuple[int, ...]
    positions: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)


def passes(episode: str, turns: Iterable[TurnIds], rounds: int | None = None) -> list[Pass]:
    """The passes of an episode's rounds 1…`rounds` (None: all), in order of rounds.

    One pass holds every turn whose prompt extends the prompt and generation before it; a turn with
    a full prompt of its own (the prefix property is broken there) begins another. So an episode
    that keeps the property takes one pass, one whose template rewrites every turn takes T.

    Raises UserError where the token ids were not kept, as for an API.
    """
    found: list[Pass] = []
    ids: list[int] = []
    at: list[int] = []
    read: list[int] = []
    for turn in sorted(turns, key=lambda t: t.turn):
        if rounds is not None and turn.turn > rounds:
            break
        if turn.prompt_ids is None or turn.generated_ids is None:
            raise UserError(
                f"episode {episode} has no token ids in turn {turn.turn} (they are kept for local "
                "engines only), so it has no hidden states",
                "leave this agent's probes out, or collect with engine: vllm or transformers",
            )
        if turn.prompt_is_full:
            found += _closed(episode, ids, read, at)
            ids, at, read = [], [], []
        elif not ids:
            raise ValueError(f"episode {episode} begins with turn {turn.turn}, a continuation")
        ids.extend(turn.prompt_ids)
        last = len(ids) + tokens_run(turn) - 1
        if last >= len(ids):
            at.append(last)
            read.append(turn.turn)
        ids.extend(turn.generated_ids)
    return found + _closed(episode, ids, read, at)


def tokens_run(turn: TurnIds) -> int:
    """How many generated tokens the engine ran before the turn ended."""
    n = len(turn.generated_ids or ())
    return max(n - 1, 0) if turn.finish_reason == "length" else n


def _closed(episode: str, ids: list[int], rounds: list[int], at: list[int]) -> list[Pass]:
    if not at:
        return []
    kept = np.asarray(ids[: at[-1] + 1], dtype=np.int32)
    return [Pass(episode, kept, tuple(rounds), tuple(at))]
