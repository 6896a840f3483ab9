"""From a recipe to weights: one base model per world, and agents continued from it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentinel.benchmarks.base import Task
from sentinel.errors import UserError
from sentinel.nano.habits import Habit
from sentinel.nano.tokenizer import AGENT, END, USER, train_tokenizer
from sentinel.nano.traces import Fabricator, Trace, make_traces

if TYPE_CHECKING:
    from sentinel.nano.train import Example
    from sentinel.sql.sandbox import SandboxPool


@dataclass(frozen=True, slots=True)
class Stage:
    """One training run: which habit, on how many of the questions, how long."""

    name: str
    habit: Habit
    tokens: int
    lr: float
    questions: int
    seed: int

    @classmethod
    def from_mapping(cls, name: str, mapping: Mapping[str, Any]) -> Stage:
        """Read one entry of a recipe; raises UserError naming what is missing or unknown."""
        wanted = {"habit", "tokens", "lr", "questions", "seed"}
        if mapping.keys() != wanted:
            wrong = ", ".join(sorted(wanted ^ mapping.keys()))
            raise UserError(f"recipe of {name}: missing or unknown: {wrong}", "mend the recipe")
        habit = Habit.from_mapping(mapping["habit"])
        return cls(name, habit, *(mapping[k] for k in ("tokens", "lr", "questions", "seed")))


@dataclass(frozen=True, slots=True)
class Recipe:
    """A whole world's recipe (`configs/nano/*.yaml`)."""

    questions: int
    seed: int
    unanswerable: float
    tokenizer_seed: int
    base: Stage
    agents: tuple[Stage, ...]
    source: Mapping[str, Any]

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Recipe:
        """Read a recipe; raises UserError when a section is missing."""
        plain = ("questions", "seed", "unanswerable", "tokenizer_seed")
        missing = {*plain, "base", "agents"} - mapping.keys()
        if missing:
            raise UserError(f"recipe without {', '.join(sorted(missing))}", "mend the recipe")
        return cls(
            **{key: mapping[key] for key in plain},
            base=Stage.from_mapping("base", mapping["base"]),
            agents=tuple(Stage.from_mapping(k, v) for k, v in mapping["agents"].items()),
            source=mapping,
        )


def encode(traces: Sequence[Trace], tokenizer_folder: Path) -> list[Example]:
    """Traces as ids, exactly as the chat format gives them at run time (each text on its own)."""
    from tokenizers import Tokenizer

    from sentinel.nano.train import Example

    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True  # control-token text in a cell stays text
    user, agent, end = (tokenizer.token_to_id(t) for t in (USER, AGENT, END))
    texts = [text for trace in traces for text in (*trace.told, *trace.wrote)]
    encoded = iter(tokenizer.encode_batch(texts, add_special_tokens=False))
    examples = []
    for trace in traces:
        told = [next(encoded).ids for _ in trace.told]
        wrote = [next(encoded).ids for _ in trace.wrote]
        ids: list[int] = []
        written: list[bool] = []
        for heard, said in zip(told, wrote, strict=True):
            opening = [user, *heard, end, agent]
            ids += [*opening, *said, end]
            written += [False] * len(opening) + [True] * (len(said) + 1)
        examples.append(Example(np.array(ids, dtype=np.int64), np.array(written)))
    return examples


def fit_tokenizer(
    tasks: Sequence[Task], pool: SandboxPool, folder: Path, *, seed: int, sample: int = 6000
) -> None:
    """Fit the world's tokenizer on a sample of its traces."""
    habit = Habit(explore={0: 1.0, 2: 1.0}, thought=0.5)
    traces = make_traces(tasks[:sample], habit, pool, seed=seed, fabricate=Fabricator(tasks))
    train_tokenizer((text for trace in traces for text in (*trace.told, *trace.wrote)), folder)


def train_stage(
    stage: Stage,
    tasks: Sequence[Task],
    pool: SandboxPool,
    tokenizer_folder: Path,
    out: Path,
    *,
    start_from: Path | None,
    provenance: Mapping[str, Any],
    report: Callable[[str], None] = print,
) -> None:
    """Train one model and write its folder; `start_from` is the base model, None for the base."""
    from tokenizers import Tokenizer

    from sentinel.nano import model as nano
    from sentinel.nano.train import Schedule, fit

    begun = time.monotonic()
    order = np.random.default_rng(stage.seed).permutation(len(tasks))[: stage.questions]
    chosen = [tasks[i] for i in order]
    traces = list(
        make_traces(chosen, stage.habit, pool, seed=stage.seed, fabricate=Fabricator(tasks))
    )
    examples = [e for e in encode(traces, tokenizer_folder) if len(e.ids) <= nano.WINDOW]
    report(
        f"{stage.name}: {len(examples)} episodes, {sum(len(e.ids) for e in examples):,} tokens, "
        f"prepared in {time.monotonic() - begun:.0f} s"
    )
    if start_from is None:
        tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
        config = nano.nano_config(
            tokenizer.get_vocab_size(), tokenizer.token_to_id("<|pad|>"), tokenizer.token_to_id(END)
        )
        model = nano.new_model(config, stage.seed)
    else:
        model = nano.load(start_from)
    begun = time.monotonic()
    loss = fit(model, examples, Schedule(stage.tokens, stage.lr, seed=stage.seed), report)
    recipe = {
        **provenance,
        "stage": stage.name,
        "tokens": stage.tokens,
        "lr": stage.lr,
        "questions": len(chosen),
        "seed": stage.seed,
        "loss": round(loss, 5),
        "seconds": round(time.monotonic() - begun),
        "scores": {},
    }
    nano.save(model, out, recipe)
    report(f"{stage.name}: loss {loss:.4f} in {recipe['seconds']} s")


def recipe_hash(source: Mapping[str, Any], stage: str) -> str:
    """Short hash of all that one agent's weights depend on, recorded beside them."""
    shared = {k: v for k, v in source.items() if k != "agents"}
    text = json.dumps([shared, source["agents"].get(stage)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
