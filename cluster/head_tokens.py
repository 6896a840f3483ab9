"""Token ids of an agent's prefixes, made once: both heads and all folds read the same part.

The questions, which are t = 0 of every agent, are tokenised once per benchmark. Ids depend on the
encoder's tokenizer alone; labels and scores are the agents' own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cluster.head_stages import HEADS, Where, read_tasks
from sentinel.heads.config import HeadConfig

if TYPE_CHECKING:
    from sentinel.heads.tokens import Tokenized

TOKENS, QUESTIONS = "tokens", "questions"


@dataclass(frozen=True)
class QuestionItem:
    """The questions of one benchmark; `name` is the part's, of one encoder and set of tasks."""

    where: Where
    name: str
    settings: Mapping[str, Any] = field(hash=False)


def question_part(item: QuestionItem) -> dict[str, pa.Table]:
    """Ids of every question, alone and as the first line of a longer text: table `questions`."""
    from sentinel.episodes import render
    from sentinel.heads.lines import LineTokens
    from sentinel.heads.model import head_tokenizer
    from sentinel.heads.tokens import flatten

    reader = LineTokens(head_tokenizer(HeadConfig.of(item.settings))[0])
    texts = [render(task["text"], (), 0) for task in read_tasks(item.where).values()]
    pieces = list(dict.fromkeys([*texts, *(f"{text}\n" for text in texts)]))
    reader.learn(pieces)
    ids = flatten([reader.piece(p) for p in pieces]).to_table()
    return {QUESTIONS: ids.add_column(0, "text", pa.array(pieces, pa.large_string()))}


def token_part(
    where: Where, questions: str, settings: Mapping[str, Any], texts: Sequence[str]
) -> pa.Table:
    """Ids of an agent's prefixes, a row each; `questions` names the part whose lines are known."""
    from sentinel.heads.lines import LineTokens
    from sentinel.heads.model import head_tokenizer
    from sentinel.heads.tokens import Tokenized, flatten

    reader = LineTokens(head_tokenizer(HeadConfig.of(settings))[0])
    for item, table in where.run_dir.read_parts(HEADS, where.benchmark, None, QUESTIONS):
        if item == questions:
            known = Tokenized.from_table(table.select(["ids"]))
            rows = [
                known.ids[a:b] for a, b in zip(known.starts[:-1], known.starts[1:], strict=True)
            ]
            reader.remember(table["text"].to_pylist(), rows)
    return flatten(reader.read(texts)).to_table()


def read_tokens(where: Where, settings: Mapping[str, Any]) -> Tokenized | None:
    """The ids of an agent's prefixes, in the order of its snapshots; None for TF–IDF heads."""
    from sentinel.heads.tokens import Tokenized

    if settings["kind"] != "encoder":
        return None
    for _, table in where.run_dir.read_parts(HEADS, where.benchmark, where.agent, TOKENS):
        return Tokenized.from_table(table)
    raise RuntimeError(f"no token ids of {where.benchmark}/{where.agent}")
