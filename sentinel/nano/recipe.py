"""From a recipe to weights: one base model per world, and agents continued from it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentinel.benchmarks.base import CraftTrainable, SqlTrainable, Task, Trainable
from sentinel.errors import UserError
from sentinel.nano import craft, traces
from sentinel.nano.craft import CraftHabit
from sentinel.nano.habits import Habit
from sentinel.nano.tokenizer import AGENT, END, USER, train_tokenizer
from sentinel.nano.traces import Fabricator, Trace

if TYPE_CHECKING:
    from sentinel.nano.train import Example

HABITS: Mapping[str, type[Habit] | type[CraftHabit]] = {"sql": Habit, "craft": CraftHabit}
"""Kind of world → what a `habit:` section of its recipe says."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One training run: which habit, on how many of the questions, how long.

    `batch_tokens` may be left out of a recipe.
    """

    name: str
    habit: Habit | CraftHabit
    tokens: int
    lr: float
    questions: int
    seed: int
    batch_tokens: int = 8192

    @classmethod
    def from_mapping(cls, name: str, mapping: Mapping[str, Any], world: str = "sql") -> Stage:
        """Read one entry of a recipe; raises UserError naming what is missing or unknown."""
        wanted = {"habit", "tokens", "lr", "questions", "seed"}
        settings = {k: v for k, v in mapping.items() if k != "batch_tokens"}
        if settings.keys() != wanted:
            wrong = ", ".join(sorted(wanted ^ settings.keys()))
            raise UserError(f"recipe of {name}: missing or unknown: {wrong}", "mend the recipe")
        habit = HABITS[world].from_mapping(mapping["habit"])
        return cls(name=name, **{**mapping, "habit": habit})


@dataclass(frozen=True, slots=True)
class Recipe:
    """A whole world's recipe (`configs/nano/*.yaml`); `world` is a key of `HABITS`.

    `start_from` names a shipped agent: the base continues from it and speaks its vocabulary.
    `held_back` tasks of the agent pool are measured on and not trained on (`held_back.py`).
    """

    questions: int
    seed: int
    tokenizer_seed: int
    unanswerable: float
    world: str
    base: Stage
    agents: tuple[Stage, ...]
    source: Mapping[str, Any]
    start_from: str | None = None
    held_back: int = 0

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Recipe:
        """Read a recipe; raises UserError when a section is missing."""
        plain = ("questions", "seed", "tokenizer_seed")
        missing = {*plain, "base", "agents"} - mapping.keys()
        if missing:
            raise UserError(f"recipe without {', '.join(sorted(missing))}", "mend the recipe")
        world = str(mapping.get("world", "sql"))
        if world not in HABITS:
            raise UserError(f"recipe of an unknown world {world!r}", f"use {' or '.join(HABITS)}")
        return cls(
            **{key: mapping[key] for key in plain},
            unanswerable=mapping.get("unanswerable", 0.0),
            world=world,
            base=Stage.from_mapping("base", mapping["base"], world),
            agents=tuple(Stage.from_mapping(k, v, world) for k, v in mapping["agents"].items()),
            source=mapping,
            start_from=mapping.get("start_from"),
            held_back=mapping.get("held_back", 0),
        )


def encode(made: Sequence[Trace], tokenizer_folder: Path) -> list[Example]:
    """Traces as ids, exactly as the chat format gives them at run time (each text on its own)."""
    from tokenizers import Tokenizer

    from sentinel.nano.train import Example

    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True  # control-token text in a cell stays text
    user, agent, end = (tokenizer.token_to_id(t) for t in (USER, AGENT, END))
    texts = [text for trace in made for text in (*trace.told, *trace.wrote)]
    encoded = iter(tokenizer.encode_batch(texts, add_special_tokens=False))
    examples = []
    for trace in made:
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


def make_traces(
    chosen: Sequence[Task],
    habit: Habit | CraftHabit,
    benchmark: Trainable,
    tasks: Sequence[Task],
    seed: int,
) -> Iterator[Trace]:
    """Training episodes for the chosen tasks, whichever world they are of.

    `tasks` is the whole agent pool, from which a query without an answer is fabricated.
    """
    if isinstance(habit, CraftHabit):
        if not isinstance(benchmark, CraftTrainable):
            raise UserError(
                f"{benchmark.name} has no recipes to craft by", "mend `world` in the recipe"
            )
        return craft.make_traces(chosen, habit, benchmark.recipe_book(), seed=seed)
    if not isinstance(benchmark, SqlTrainable):
        raise UserError(f"{benchmark.name} has no database to ask", "mend `world` in the recipe")
    fabricate = Fabricator(tasks)
    return traces.make_traces(chosen, habit, benchmark.sandbox(), seed=seed, fabricate=fabricate)


def fit_tokenizer(
    tasks: Sequence[Task],
    benchmark: Trainable,
    folder: Path,
    *,
    world: str = "sql",
    seed: int,
    sample: int = 6000,
) -> None:
    """Fit the world's tokenizer on a sample of its traces."""
    habit: Habit | CraftHabit = Habit(explore={0: 1.0, 2: 1.0}, thought=0.5)
    if world == "craft":
        rules = ({"do": "similar", "chance": 0.2}, {"do": "short", "chance": 0.2})
        habit = CraftHabit.from_mapping({"rules": rules, "stuck": "inventory"})
    made = make_traces(tasks[:sample], habit, benchmark, tasks, seed)
    train_tokenizer((text for trace in made for text in (*trace.told, *trace.wrote)), folder)


def train_stage(
    stage: Stage,
    tasks: Sequence[Task],
    benchmark: Trainable,
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
    made = list(make_traces(chosen, stage.habit, benchmark, tasks, stage.seed))
    examples = [e for e in encode(made, tokenizer_folder) if len(e.ids) <= nano.WINDOW]
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
    schedule = Schedule(stage.tokens, stage.lr, stage.batch_tokens, seed=stage.seed)
    loss = fit(model, examples, schedule, report)
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
