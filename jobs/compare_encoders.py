"""`sentinel compare-encoders RUN [OTHER] [heads.…=…]`: is another encoder worth adopting?

With a config in the place of RUN, its run is first brought to where its heads have scored, as
`sentinel run` would; what is finished is kept. The heads of RUN against those of OTHER, a run on
the same episodes, or against heads with other settings that are fitted here, on RUN's own folds
(killed, it goes on where it was). Beside both stands TF–IDF with a logistic regression, the cheap
baseline. Train pool, out-of-fold, at delivery; the held-out pool is not read. Writes
`encoder_rule.json` into RUN, where `sentinel report` finds it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import encoder_fits
from jobs import run as stages
from jobs.config import RunConfig
from jobs.stages import run_stages
from sentinel.errors import UserError

if TYPE_CHECKING:
    from cluster.run_dir import RunDir
    from sentinel.audit.pool import TrainPool

FILE = "encoder_rule.json"
TFIDF = "tfidf"
MISSING = 3
"""Exit code of a run that is done but for what it names."""
Logits = Mapping[tuple[str, str], Mapping[str, Any]]
"""(benchmark, agent) → head → (E,) out-of-fold logits in the order of RUN's train episodes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Two run directories, or one and the settings of the heads to fit."""
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="run directory with fitted heads, or a config (YAML)"
    )
    parser.add_argument("other", nargs="?", metavar="OTHER", help="another on the same episodes")
    parser.add_argument(
        "settings", nargs="*", metavar="heads.key=value", help="heads to fit and compare instead"
    )
    parser.add_argument(
        "--run-dir", type=Path, help="where a config's run lives (default: runs/NAME)"
    )
    parser.add_argument("--on", choices=("local", "debug"), help="Ray here, or a plain loop")
    parser.add_argument(
        "--control",
        action="store_true",
        help="fit every encoder on shuffled labels as well: each must be at chance",
    )
    parser.add_argument("--json", action="store_true", help=f"print {FILE} instead of a table")


def main(args: argparse.Namespace) -> int:
    """Compare, print the table and keep it."""
    from cluster import files
    from cluster.run_dir import RunDir

    settings = list(args.settings)
    other = args.other
    if other is not None and "=" in other and not Path(other).exists():
        settings.insert(0, other)
        other = None
    if (other is None) == (not settings):
        raise UserError(
            "name what to compare with",
            "sentinel compare-encoders RUN OTHER, or RUN heads.encoder=FOLDER heads.epochs=3",
        )
    if strange := [s for s in settings if not s.startswith("heads.")]:
        raise UserError(f"{', '.join(strange)}: only heads are fitted here", "give heads.key=value")
    of_config = args.run.suffix in (".yaml", ".yml") and args.run.is_file()
    if args.run_dir is not None and not of_config:
        raise UserError(f"--run-dir goes with a config, and {args.run} is none", "leave it out")
    if of_config:
        root, code = _up_to_heads(args, settings)
        if code not in (0, MISSING):
            return code
    else:
        root, code = args.run.expanduser().absolute(), 0
    config = stages.recorded_config(root)
    run_dir = RunDir(root)
    pools = {place: _pool(run_dir, *place) for place in _places(config, run_dir)}
    if not pools:
        raise UserError(f"no heads have scored in {root}", f"sentinel heads --run-dir '{root}'")
    on = args.on or config.on
    if other is not None:
        base = Path(other).expanduser().absolute()
        name, logits = _of_run(base, pools, config)
        changed = stages.recorded_config(base)
    else:
        changed = stages.recorded_config(root, settings)
        name, logits = _fitted(config, changed, run_dir, pools, on)
    found = document(config, pools, name, logits)
    if args.control:
        encoders = {config.heads.encoder_name: config, name: changed}
        if TFIDF not in encoders:
            plain = config.heads.model_copy(update={"kind": "tfidf"})
            encoders[TFIDF] = config.model_copy(update={"heads": plain})
        with encoder_fits.opened(config, run_dir, on) as cluster:
            found["controls"] = encoder_fits.controls(encoders, run_dir, pools, cluster)
    files.write_json(root / FILE, found)
    if args.json:
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        print("\n".join([*table(found), f"kept: {root / FILE}"]))
    return code


def _up_to_heads(args: argparse.Namespace, settings: Sequence[str]) -> tuple[Path, int]:
    """Run a config's stages whose tables the comparison reads; its run directory, the exit code.

    The other heads are checked first: a misspelt one is told before anything is collected.
    """
    config = RunConfig.from_file(args.run, [f"on={args.on}"] if args.on else [])
    if "heads" not in config.stages or config.sweep:
        what = "is a sweep" if config.sweep else "has no text heads"
        raise UserError(f"{args.run} {what}", "name a config of one run with monitors: [sentinel]")
    changed = RunConfig.from_file(args.run, settings)
    _check_other(config, changed, [benchmark.name for benchmark in config.benchmarks])
    wanted = [s for s in ("collect", "label", "judge", "heads") if s in config.stages]
    root = (args.run_dir or Path("runs") / config.name).expanduser().absolute()
    return root, run_stages(config, root, wanted)


def document(
    config: RunConfig, pools: Mapping[tuple[str, str], TrainPool], name: str, logits: Logits
) -> dict[str, Any]:
    """The rule on every agent and head: `rows`, and per agent whether every head gains."""
    from sentinel.audit.battery import out_of_fold
    from sentinel.heads.config import HEADS
    from sentinel.heads.encoder_rule import MARGIN, adopted, rule

    mine = config.heads.encoder_name
    rows = []
    verdicts = {}
    how: dict[str, Any] = {
        "resamples": config.bootstrap.resamples,
        "seed": config.bootstrap.seed,
    }
    for (benchmark, agent), pool in pools.items():
        asked = []
        for head in HEADS:
            use = pool.eligible(head)
            if not use.any():
                continue
            positive = pool.targets[head][use] > 0.5
            scores = {mine: pool.logits[head][use], name: logits[benchmark, agent][head][use]}
            pairs = [(name, mine)]
            if TFIDF not in scores:
                pairs += [(mine, TFIDF), (name, TFIDF)]
                texts, fold = pool.transcript[use], pool.fold[use]
                (scores[TFIDF],) = out_of_fold(texts, [positive], fold, config.heads.seed)
            for candidate, against in pairs:
                one = rule(scores[candidate], scores[against], positive, pool.group[use], **how)
                where = {"benchmark": benchmark, "agent": agent, "head": head}
                rows.append({**where, "encoder": candidate, "against": against, **one})
                if (candidate, against) == (name, mine):
                    asked.append(one)
        verdicts[f"{benchmark}/{agent}"] = adopted(asked)
    return {
        "encoder": name,
        "against": mine,
        "margin": MARGIN,
        "pool": "train, out-of-fold, at t = T",
        "adopt": verdicts,
        "rows": rows,
        **how,
    }


def table(found: Mapping[str, Any]) -> list[str]:
    """The comparison as lines for a terminal."""
    out = [
        f"{'agent':26} {'head':13} {'encoder':>20} {'AUROC':>6} {'against':>20} {'AUROC':>6} "
        f"{'difference':>24}  rule"
    ]
    for r in found["rows"]:
        span = "" if r["low"] is None else f" [{r['low']:+.3f}, {r['high']:+.3f}]"
        delta = r["note"] if r["delta"] is None else f"{r['delta']:+.3f}{span}"
        verdict = {True: f"≥ {found['margin']}", False: "keep", None: "undefined"}[r["adopted"]]
        out.append(
            f"{r['benchmark'] + '/' + r['agent']:26} {r['head']:13} {r['encoder'][-20:]:>20} "
            f"{_number(r['auroc'])} {r['against'][-20:]:>20} {_number(r['auroc_against'])} "
            f"{delta:>24}  {verdict}"
        )
    chance = {True: "at chance", False: "NOT at chance", None: "undefined"}
    for r in found.get("controls", ()):
        span = "" if r["low"] is None else f" ({r['low']:.3f} to {r['high']:.3f} is chance)"
        out.append(
            f"shuffled labels, {r['benchmark']}/{r['agent']}, {r['encoder']}: AUROC within folds "
            f"{_number(r['fold_mean']).strip()}{span}: {chance[r['passed']]}"
        )
    words = {True: "adopt", False: "keep", None: "undefined"}
    for where, verdict in found["adopt"].items():
        out.append(f"{where}: {words[verdict]} ({found['encoder']} for {found['against']})")
    return out


def _number(value: float | None) -> str:
    return f"{'?':>6}" if value is None else f"{value:6.3f}"


def _places(config: RunConfig, run_dir: RunDir) -> Iterator[tuple[str, str]]:
    for benchmark, agent in config.pairs:
        if run_dir.table_path("scores", benchmark.name, agent.name).exists():
            yield benchmark.name, agent.name


def _pool(run_dir: RunDir, benchmark: str, agent: str) -> TrainPool:
    from cluster.head_stages import Where, read_snapshots
    from sentinel.audit.pool import TrainPool

    episodes = run_dir.read("episodes", benchmark, agent)
    ends = dict(zip(episodes["episode_id"].to_pylist(), episodes["end"].to_pylist(), strict=True))
    scores = run_dir.read("scores", benchmark, agent)
    features = run_dir.read("features", benchmark, agent)
    snapshots = read_snapshots(Where(str(run_dir.root), benchmark, agent))
    return TrainPool.of(snapshots, ends, features, scores)


def _of_run(
    root: Path, pools: Mapping[tuple[str, str], TrainPool], config: RunConfig
) -> tuple[str, Logits]:
    """The other run's name for its encoder and its logits; refused where it is another sample."""
    import numpy as np

    from cluster.run_dir import RunDir

    theirs = stages.recorded_config(root)
    name = theirs.heads.encoder_name
    if name == config.heads.encoder_name:
        name = f"{name} ({root.name})"
    run_dir = RunDir(root)
    found = {}
    for place, pool in pools.items():
        if not run_dir.table_path("scores", *place).exists():
            raise UserError(
                f"no heads of {'/'.join(place)} have scored in {root}",
                f"sentinel heads --run-dir '{root}'",
            )
        other = _pool(run_dir, *place)
        same = len(other) == len(pool) and all(
            np.array_equal(getattr(other, n), getattr(pool, n))
            for n in ("episode_id", "group", "fold", "transcript")
        )
        same = same and all(
            np.array_equal(other.targets[h], pool.targets[h], equal_nan=True) for h in pool.targets
        )
        if not same:
            raise UserError(
                f"the train episodes of {'/'.join(place)}, their folds or their labels differ "
                f"between the two runs ({len(pool)} and {len(other)} episodes)",
                "fit on one run instead: sentinel compare-encoders RUN heads.encoder=…",
            )
        found[place] = other.logits
    return name, found


def _fitted(
    config: RunConfig,
    changed: RunConfig,
    run_dir: RunDir,
    pools: Mapping[tuple[str, str], TrainPool],
    on: str,
) -> tuple[str, Logits]:
    """Heads with the changed settings, fitted on the run's own folds; finished folds are kept."""
    _check_other(config, changed, {b for b, _ in pools})
    name = changed.heads.encoder_name
    if name == config.heads.encoder_name:
        name = f"{name} ({changed.heads.hash()[:8]})"
    with encoder_fits.opened(changed, run_dir, on) as cluster:
        return name, encoder_fits.logits(changed, run_dir, pools, cluster)


def _check_other(config: RunConfig, changed: RunConfig, benchmarks: Iterable[str]) -> None:
    """Raise UserError for heads that are the run's own, or that cannot be fitted on its folds."""
    from jobs.heads import head_settings
    from sentinel.heads.config import HeadConfig
    from sentinel.heads.encoders import check_encoder

    if changed.heads.hash() == config.heads.hash():
        raise UserError("these are the settings the run's heads have", "change heads.encoder")
    if changed.heads.folds != config.heads.folds:
        raise UserError("heads.folds is the run's own", "leave it as it is")
    for benchmark in benchmarks:
        check_encoder(HeadConfig.of(head_settings(changed, benchmark)))
