"""`sentinel train-nano BENCHMARK_CONFIG`: from a recipe to the embedded agents of a benchmark.

Works for any benchmark that offers `agent_questions` (an `agent` pool) and what training episodes
are made with: a `sandbox` for its reference queries, or a `recipe_book`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import config_files as files
from sentinel.errors import UserError

if TYPE_CHECKING:
    from sentinel.benchmarks.base import Task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """BENCHMARK_CONFIG, the recipe, where to, and which of the models."""
    parser.add_argument("benchmark", metavar="BENCHMARK_CONFIG")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    parser.add_argument("--recipe", type=Path, help="default: configs/nano/NAME.yaml, or KIND.yaml")
    parser.add_argument("--out", type=Path, help="default: where the embedded agents live")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="`tokenizer`, `base` or agents; default: all"
    )
    parser.add_argument(
        "--scores",
        action="store_true",
        help="only measure the agents, on the pools that no agent was trained on",
    )
    parser.add_argument("--limit", type=int, help="measure on at most so many questions")


def main(args: argparse.Namespace) -> int:
    """Train what was asked for, in the order tokenizer, base, agents."""
    import sentinel.nano
    from jobs.tasks import cache_dir
    from sentinel.benchmarks.base import Trainable
    from sentinel.benchmarks.registry import load
    from sentinel.nano import recipe as recipes
    from sentinel.nano.held_back import hold_back

    mapping = files.resolve("benchmarks", args.benchmark, Path.cwd())
    late = [name for name in args.only or () if "=" in name]  # settings behind --only
    only = [name for name in args.only or () if name not in late] or None
    for key, value in files.parse_overrides([*args.settings, *late]):
        files.apply(mapping, key, value)
    source = files.read_mapping(args.recipe or _recipe(mapping))
    recipe = recipes.Recipe.from_mapping(source)
    out = args.out or Path(sentinel.nano.__file__).parent
    wanted = _wanted(only, recipe)
    benchmark = load(mapping)
    if not isinstance(benchmark, Trainable):
        raise UserError(
            f"benchmark {mapping['name']} has no `agent` pool to train on",
            "train on one that has, e.g. configs/benchmarks/clinic.yaml or craft.yaml",
        )
    work = out / "weights" / f".{mapping['name']}-base"
    tokenizer = out / "tokenizers" / mapping["name"]
    benchmark.prepare(cache_dir())
    fingerprint = benchmark.fingerprint()
    try:
        if args.scores:
            for stage in (s for s in recipe.agents if s.name in wanted):
                record_scores(out / "weights" / stage.name, tokenizer, benchmark, limit=args.limit)
            return 0
        tasks = list(
            benchmark.agent_questions(
                recipe.seed, recipe.questions, unanswerable=recipe.unanswerable
            )
        )
        held: list[Task] = []
        if recipe.held_back:
            tasks, held = hold_back(tasks, recipe.held_back, recipe.seed)
        if "tokenizer" in wanted:
            if recipe.start_from is None:
                recipes.fit_tokenizer(
                    tasks, benchmark, tokenizer, world=recipe.world, seed=recipe.tokenizer_seed
                )
            else:
                known = sentinel.nano.tokenizer_dir(sentinel.nano.world_of(recipe.start_from))
                shutil.copytree(known, tokenizer, dirs_exist_ok=True)
            _say(f"tokenizer: {tokenizer}")
        _refuse_missing("tokenizer", tokenizer / "tokenizer.json", wanted)
        for stage in (recipe.base, *recipe.agents):
            if stage.name not in wanted:
                continue
            base = stage is recipe.base
            if not base:
                _refuse_missing("base", work / "model.safetensors", wanted)
            folder = work if base else out / "weights" / stage.name
            recipes.train_stage(
                stage,
                tasks,
                benchmark,
                tokenizer,
                folder,
                start_from=_start(recipe) if base else work,
                provenance={
                    "recipe": recipes.recipe_hash(source, stage.name),
                    "benchmark": fingerprint,
                    "habit": (source["base"] if base else source["agents"][stage.name])["habit"],
                },
                report=_say,
            )
            if not base:
                if args.out is not None:  # a model folder of its own, for any agent config
                    for file in tokenizer.iterdir():
                        shutil.copyfile(file, folder / file.name)
                if held:  # the level is set by these alone
                    record_scores(folder, tokenizer, benchmark, held)
                else:
                    record_scores(folder, tokenizer, benchmark, limit=args.limit)
    finally:
        benchmark.close()
    if only is None:
        shutil.rmtree(work)
    return 0


def record_scores(
    folder: Path,
    tokenizer: Path,
    benchmark: Any,
    held: Sequence[Task] = (),
    *,
    limit: int | None = None,
) -> None:
    """Measure one agent and write that to RECIPE.json, pool by pool.

    On the tasks of the agent pool that were `held` back from its training; without them on every
    other pool (it was trained on none), on `limit` questions at most, each pool and kind in its
    share.
    """
    from cluster.engines.transformers import TransformersEngine
    from jobs.nano_scores import label, outcomes, play, scores
    from sentinel.splits import Pool
    from sentinel.task_table import choose, draw_pools

    # As the agents' configs have it: long episodes cost less than half in float32.
    dtype = "float64" if hasattr(benchmark, "sandbox") else "float32"
    engine = TransformersEngine(folder, dtype=dtype, tokenizer_dir=tokenizer)
    if held:
        tasks, pool_of = list(held), dict.fromkeys((t.task_id for t in held), Pool.AGENT)
    else:
        pool_of = dict(draw_pools(benchmark, benchmark.tasks()).pool)
        tasks = choose(benchmark.tasks(), pool_of, limit, seed=0)
    episodes = play(engine, benchmark, tasks)
    correct = label(benchmark, episodes, tasks)
    measured = {}
    for pool in sorted({pool_of[t.task_id] for t in tasks}):
        rows = [i for i, t in enumerate(tasks) if pool_of[t.task_id] == pool]
        measured[str(pool)] = scores(
            [episodes[i] for i in rows], [tasks[i] for i in rows], [correct[i] for i in rows]
        )
    measured["all"] = scores(episodes, tasks, correct)
    path = folder / "RECIPE.json"
    recipe = json.loads(path.read_text())
    recipe |= {"scores": measured, "outcomes": outcomes(episodes, correct)}
    path.write_text(json.dumps(recipe, indent=2) + "\n")
    _say(f"{folder.name}: {measured['all']}")


def _start(recipe: Any) -> Path | None:
    from sentinel.nano import weights_dir

    return None if recipe.start_from is None else weights_dir(recipe.start_from)


def _recipe(mapping: Mapping[str, Any]) -> Path:
    """The recipe of a benchmark's name, else that of its kind."""
    folder = Path("configs/nano")
    own = folder / f"{mapping['name']}.yaml"
    return own if own.is_file() else folder / f"{mapping.get('kind', mapping['name'])}.yaml"


def _wanted(only: list[str] | None, recipe: Any) -> set[str]:
    names = {"tokenizer", "base", *(s.name for s in recipe.agents)}
    unknown = sorted(set(only or ()) - names)
    if unknown:
        raise UserError(
            f"no such model: {', '.join(unknown)}", f"valid: {', '.join(sorted(names))}"
        )
    return set(only or names)


def _refuse_missing(what: str, path: Path, wanted: set[str]) -> None:
    if not path.is_file():
        raise UserError(f"the {what} is not there yet ({path})", f"add {what} to --only")


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)
