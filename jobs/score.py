"""`sentinel score MONITOR --run-dir RUN`: a frozen monitor reads the episodes of a run.

Of a run whose pool has grown, or of another one, only prefixes that these heads have not read
before go through them: their logits are kept in `scored/BENCHMARK/AGENT/` of the run, written as
they come, so that a killed pass goes on. A look at the held-out pool is entered in its ledger, as
stage calibrate's is. Writes a `prefix_scores` table: probabilities as stage
calibrate makes them, `correct` and the features null where stage label has not been.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.score_monitors import Asked, asked, check, enter
from sentinel.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from cluster.head_stages import Where
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from cluster.score_stages import ScoreItem
    from jobs.config import RunConfig

STAGE = "score"
POOLS = ("calibration", "heldout")
"""What the final pair of a run scores: it was fitted on the train pool."""
SUFFIXES = (".parquet", ".pq", ".csv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Monitors, the run, and what of it."""
    parser.add_argument(
        "monitors",
        metavar="MONITOR",
        nargs="+",
        type=Path,
        help="monitor/BENCHMARK/AGENT/sentinel of a run, a copy of it, or a run: all its monitors",
    )
    parser.add_argument(
        "--run-dir", type=Path, required=True, help="the run whose episodes are read"
    )
    parser.add_argument(
        "--benchmark", metavar="NAME", help="that of the run (default: the monitor's)"
    )
    parser.add_argument("--agent", metavar="NAME", help="that of the run (default: the monitor's)")
    parser.add_argument(
        "--pool",
        action="append",
        choices=("train", *POOLS),
        help="only this pool (may be repeated; default: calibration and heldout, as the heads were "
        "fitted on train)",
    )
    parser.add_argument(
        "--transfer",
        metavar="REASON",
        help="read another benchmark, agent, prompt or pools than the monitor's, and why",
    )
    parser.add_argument(
        "--again",
        metavar="WHY",
        help="read a held-out pool that another monitor was evaluated on, and why",
    )
    parser.add_argument("--out", type=Path, help="the table, .parquet or .csv, of one agent")
    parser.add_argument(
        "--flush-tokens",
        type=int,
        metavar="N",
        help="tokens between two writes: what a kill can cost (default: a million)",
    )
    parser.add_argument("--on", choices=("local", "debug"), help="Ray here, or a plain loop")


def main(args: argparse.Namespace) -> int:
    """Score what is new and write the tables; 3 where an agent's pass failed (named on stderr)."""
    from cluster.run_dir import RunDir
    from jobs.calibrate import raise_first
    from jobs.machine import open_site
    from jobs.run import recorded_config

    root = args.run_dir.expanduser().absolute()
    config = recorded_config(root)
    run_dir = RunDir(root)
    found = list(asked(args, root))
    if args.out is not None and (len(found) > 1 or args.out.suffix.lower() not in SUFFIXES):
        raise UserError(
            f"--out {args.out} is one table, .parquet or .csv", "name one monitor, or leave it out"
        )
    if args.flush_tokens is not None and args.flush_tokens < 1:
        raise UserError("--flush-tokens is at least 1", "leave it out for a million")
    faults: list[UserError] = []
    good = []
    for one in found:
        try:
            check(config, run_dir, one, args.transfer)
            if "heldout" in (args.pool or POOLS):
                enter(run_dir, one, args.again)
            good.append(one)
        except UserError as fault:
            faults.append(fault)
    failed = False
    if good:
        with run_dir.lock(), open_site(config.site, args.on or config.on) as cluster:
            failed = _score(config, run_dir, cluster, good, args, faults)
    raise_first(faults)
    return 3 if failed else 0


def _score(
    config: RunConfig,
    run_dir: RunDir,
    cluster: Cluster,
    good: list[Asked],
    args: argparse.Namespace,
    faults: list[UserError],
) -> bool:
    """Score and write; whether a pass failed. What a user can mend is added to `faults`."""
    from cluster.pool import ItemError
    from cluster.progress import Progress
    from cluster.score_stages import score_part

    items = {_item(config, cluster, one, args): one for one in good}
    gpus = int(any(item.device == "cuda" for item in items))
    failed = False
    with Progress(STAGE, len(items), unit="agents", run_dir=run_dir) as progress:
        for item, found in cluster.map(STAGE, score_part, items, num_gpus=gpus, progress=progress):
            one = items[item]
            if isinstance(found, ItemError):
                if isinstance(found.error, UserError):
                    faults.append(found.error)
                    continue
                failed = True
                where = f"{item.where.benchmark}/{item.where.agent}"
                print(f"sentinel: {where}: {found}", file=sys.stderr)
                continue
            path = args.out or _default(one)
            table = prefix_scores(config, run_dir, item.where, found.pop("scores"), item.pools)
            _write(path, table)
            labelled = _tell(one, found, table, path, run_dir)
            run_dir.metric(
                STAGE,
                event="scored",
                benchmark=item.where.benchmark,
                agent=item.where.agent,
                monitor=one.facts["hash"],
                folder=str(one.folder),
                transfer=args.transfer,
                pools=list(item.pools),
                labelled=labelled,
                table=str(path),
                **found,
            )
    return failed


def _item(config: RunConfig, cluster: Cluster, one: Asked, args: argparse.Namespace) -> ScoreItem:
    from cluster.score_stages import ScoreItem
    from jobs.heads import head_device
    from sentinel.heads.store import FLUSH_TOKENS

    fact = next(iter(one.facts["heads"].values()))
    device = "cpu"  # where TF–IDF is at home
    if fact["kind"] == "encoder":
        device = head_device({**fact["config"], "device": config.heads.device}, cluster)
    return ScoreItem(
        one.where,
        str(one.folder),
        tuple(args.pool or POOLS),
        config.decide.drop_stopped,
        device,
        args.flush_tokens or FLUSH_TOKENS,
    )


def prefix_scores(
    config: RunConfig, run_dir: RunDir, where: Where, scores: pa.Table, pools: tuple[str, ...]
) -> pa.Table:
    """The join of stage calibrate over these scores, of some pools.

    An episode without a verdict has `correct` null, one that was not measured null features.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from jobs.label import primary_label
    from sentinel.decide.build import build
    from sentinel.tables import FEATURE_ROWS, LABELS

    place = where.benchmark, where.agent

    def read(name: str, empty: pa.Table) -> pa.Table:
        return run_dir.read(name, *place) if run_dir.table_path(name, *place).exists() else empty

    episodes = run_dir.read("episodes", *place)
    label = primary_label(config, run_dir, where.benchmark)
    labels = read("labels", LABELS.empty())
    known = set(labels.filter(pc.equal(labels["label"], label))["episode_id"].to_pylist())
    unknown = {"label": label, "correct": None, "source": "none", "version": "", "error": None}
    rows = [
        {"benchmark": place[0], "agent": place[1], "episode_id": episode, **unknown}
        for episode in episodes["episode_id"].to_pylist()
        if episode not in known
    ]
    labels = pa.concat_tables([labels, LABELS.from_rows(rows)])
    features = read("features", FEATURE_ROWS.empty())
    tasks = run_dir.read("tasks", where.benchmark)
    drop = config.decide.drop_stopped
    table, _ = build(tasks, episodes, labels, features, scores, label, drop)
    return table.filter(pc.is_in(table["pool"], pa.array(pools)))


def _default(one: Asked) -> Path:
    from cluster.score_stages import scored_folder

    return scored_folder(one.where) / f"prefix_scores-{one.facts['hash'][:8]}.parquet"


def _write(path: Path, table: pa.Table) -> None:
    import pyarrow.csv as csv

    from cluster import files

    try:
        if path.suffix.lower() == ".csv":
            files.write_atomic(path, lambda file: csv.write_csv(table, file))
        else:
            files.write_parquet(path, table)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error}", "name another file") from error


def _tell(
    one: Asked, found: Mapping[str, Any], table: pa.Table, path: Path, run_dir: RunDir
) -> bool:
    """Say what was done; whether every committed answer has its verdict."""
    import pyarrow.compute as pc

    where = one.where
    print(
        f"{where.benchmark}/{where.agent}: {found['prefixes']} prefixes of {found['episodes']} "
        f"episodes, {found['distinct']} distinct, {found['new']} new, read in {found['batches']} "
        f"batches, {found['read_seconds']:.1f} s of {found['seconds']:.1f} s"
    )
    if not found["kept"]:
        print("  TF–IDF keeps no logits: every pass reads all prefixes")
    if found["truncated"]:
        print(
            f"  {found['truncated']} prefixes are longer than the window and lost their beginning"
        )
    if found["left_out"]:
        print(f"  {found['left_out']} prefixes of other pools were left out")
    ends = table.filter(pc.and_(pc.equal(table["t"], table["T"]), table["answered"]))
    missing = ends["correct"].null_count
    if missing:
        print(f"  {missing} answers have no label: sentinel label --run-dir '{run_dir.root}'")
    print(f"  table: {path}", flush=True)
    return not missing
