"""Stage search: the abort cascade of every agent, in the modes of the config.

*paper*: splits re-drawn by seed, as Ray Tune trials of a scorer and a block of seeds; nothing is
guaranteed. *strict*: one look; the only mode that may promise, and that exports a monitor
(`monitor/BENCHMARK/AGENT/cascade/`). Reads `round_scores_MODE`; writes `cascade_rows`,
`cascade_margins` and `cascade/BENCHMARK/AGENT/MODE.json`, which holds byte for byte what `sentinel
cascade TABLE --json` prints for the same table and settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from cluster import files
from cluster.head_stages import Where
from cluster.ledger import Ledger
from cluster.probe_stages import probe_folder
from cluster.progress import Progress
from cluster.sweep import Block, sweep
from jobs.calibrate import monitor_folder, raise_first, write_bytes
from sentinel.cascade import CascadeConfig, driver
from sentinel.cascade.sweep import block, blocks, input_hash, lines, matrix
from sentinel.errors import UserError
from sentinel.user_tables import dumps

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig

STAGE = "search"
TABLES = ("cascade_rows", "cascade_margins")
TESTED = ("validation", "certification", "test")
"""Pools of strict mode that are looked at once."""
Place = tuple[str, str]


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Search every agent whose scores are there; finished parts are kept.

    A fault of one cell (a pool without an episode, a search too large) leaves the others alone and
    is raised at the end.
    """
    faults: list[UserError] = []
    strict: dict[Place, list[dict[str, Any]]] = {}
    if "strict" in config.cascade.modes:
        for place in places(config, run_dir, "strict"):
            try:
                strict[place] = _strict(config, run_dir, place)
            except UserError as error:
                faults.append(error)
    paper = {}
    if "paper" in config.cascade.modes:
        paper = _paper(config, run_dir, cluster, faults)
    for place in sorted({*strict, *paper}):
        _write_rows(run_dir, place, strict.get(place, []), paper.get(place, {}))
    raise_first(faults)


def places(config: RunConfig, run_dir: RunDir, mode: str) -> list[Place]:
    """Benchmarks and agents that have the scores of a mode."""
    return [
        (benchmark.name, agent.name)
        for benchmark in config.benchmarks
        for agent in config.agents
        if run_dir.table_path(f"round_scores_{mode}", benchmark.name, agent.name).exists()
    ]


def settings(config: RunConfig, mode: str) -> CascadeConfig:
    """The cascade's settings of a mode."""
    c = config.cascade
    paper = mode == "paper"
    targets = list(c.targets if paper else c.strict_targets)
    if paper and Fraction(c.ablation_target) not in map(Fraction, targets):
        targets = sorted([*targets, c.ablation_target], key=Fraction)
    return CascadeConfig.of(
        targets,
        mode,
        None if paper else c.method,
        c.grid,
        alpha=c.alpha,
        alpha_promise=c.alpha_promise,
        margin=c.margin,
        seeds=c.seeds if paper else None,
        rollouts=None if paper else c.rollouts,
        gates=c.gates,
        gate=c.gate,
        after_feedback=c.after_feedback,
        seed=c.seed,
        unit=c.unit,
    )


def document_path(run_dir: RunDir, place: Place, mode: str) -> Path:
    """`cascade/BENCHMARK/AGENT/MODE.json` of a run directory."""
    names = (files.safe_name(name) for name in place)
    return run_dir.root.joinpath("cascade", *names, f"{mode}.json")


def _strict(config: RunConfig, run_dir: RunDir, place: Place) -> list[dict[str, Any]]:
    """The one look of strict mode, its monitor, and its rows."""
    options = settings(config, "strict")
    table = run_dir.read("round_scores_strict", *place)
    digest = files.digest([run_dir.table_hash("round_scores_strict", *place), options.to_dict()])
    path = document_path(run_dir, place, "strict")
    folder = monitor_folder(run_dir, *place) / "cascade"
    found = _kept(path, digest)
    if found is None:
        tested = table.filter(pc.is_in(table["pool"], pa.array(TESTED)))
        manifest = files.digest(["cascade", sorted(set(tested["task_id"].to_pylist()))])
        Ledger.beside(run_dir.root).record(
            place[0], manifest, place[1], digest, run=run_dir.root.name, again=config.again
        )
        found = driver.cascade(table, options)
        from sentinel.probes.monitor import save

        where = Where(str(run_dir.root), *place)
        monitor = (
            save(
                folder,
                probe_folder(where, "strict"),
                config.cascade.deploy,
                found,
                *place,
                facts=_home(config, run_dir, place),
            )
            if _deployable(config)
            else None
        )
        _write(path, found, digest)
        run_dir.metric(STAGE, event="strict", benchmark=place[0], agent=place[1], monitor=monitor)
    how = {"mode": "strict", "method": options.method}
    rows = []
    for cell in found["cells"]:
        name = {"cell": cell["cell"], "scorer": cell["scorer"], **how}
        for t in cell["targets"]:
            rows.append(
                {
                    **name,
                    "seed": cell["seed"],
                    "target": t["target"],
                    "allocation": "cascade",
                    "recall": t["test"]["recall"],
                    "savings": t["test"]["savings"],
                    "successes": t["test"]["successes"],
                    "no_op": t["aborts_nothing"],
                }
            )
    return rows


def _home(config: RunConfig, run_dir: RunDir, place: Place) -> dict[str, Any]:
    """What a user of the monitor must know: of which tasks it is, and how states were computed."""
    from cluster.collect_tables import collected_on

    own, dtype = config.agent(place[1]).dtype, config.activations.dtype
    return {
        "settings": files.digest(config.benchmark(place[0]).mapping()),
        "collected": collected_on(run_dir, *place),
        "dtype": own if dtype == "agent" else dtype,
    }


def _deployable(config: RunConfig) -> bool:
    """The controls are no monitors."""
    return config.cascade.deploy in ("probe", "surface", "stacking", "tfidf", "heads")


def _paper(
    config: RunConfig, run_dir: RunDir, cluster: Cluster, faults: list[UserError]
) -> dict[Place, dict[str, pa.Table]]:
    """Rows over all seeds per agent, and the document of each that is complete."""
    options = settings(config, "paper")
    where = places(config, run_dir, "paper")
    tables = {place: run_dir.read("round_scores_paper", *place) for place in where}
    whole = matrix(((f"{b}/{a}", tables[b, a]) for b, a in where), options)
    whole = replace(whole, swept=(config.cascade.main,))
    owner = {f"{b}/{a}": (b, a) for b, a in where}
    # Other targets are other items: what was drawn for the earlier ones stays.
    asked = {k: v for k, v in options.to_dict().items() if k not in ("seed", "seeds")}
    planned = []
    for part in blocks(whole, config.cascade.block):
        rounds = whole.cells[part.index]
        swept = rounds.scorer in whole.swept
        name = f"{rounds.scorer} {part.name} {files.digest([asked, swept])[:8]}"
        digest = files.digest([input_hash(rounds, options), swept])
        planned.append(Block(*owner[rounds.cell], name, part, digest))
    with Progress(STAGE, len(planned), unit="blocks", run_dir=run_dir) as progress:
        swept_ = sweep(cluster, run_dir, STAGE, planned, block, whole, progress=progress)
    for name, failure in swept_.failed.items():
        if not isinstance(failure.error, UserError):
            swept_.reraise()
        else:
            faults.append(UserError(f"{name}: {failure.error.cause}", failure.error.remedy))
    broken = {(b.benchmark, b.agent) for b in planned if b.name(STAGE) in swept_.failed}
    out = {}
    for place in where:
        if place in broken:
            continue
        items = {b.item for b in planned if (b.benchmark, b.agent) == place}
        out[place] = {
            name: pa.concat_tables(
                t for item, t in run_dir.read_parts(STAGE, *place, name) if item in items
            )
            for name in TABLES
        }
        digest = files.digest([run_dir.table_hash("round_scores_paper", *place), options.to_dict()])
        path = document_path(run_dir, place, "paper")
        if _kept(path, digest) is None:
            drawn = lines(out[place]["cascade_rows"], options.targets)
            _write(path, driver.cascade(tables[place], options, drawn), digest)
    return out


def _write_rows(
    run_dir: RunDir,
    place: Place,
    strict: Sequence[Mapping[str, Any]],
    paper: Mapping[str, pa.Table],
) -> None:
    """The compacted tables of an agent, of both modes."""
    from sentinel.tables import CASCADE_MARGINS, CASCADE_ROWS

    for name, spec in zip(TABLES, (CASCADE_ROWS, CASCADE_MARGINS), strict=True):
        parts = [paper[name]] if name in paper else []
        if name == "cascade_rows":
            parts.append(spec.from_rows(strict))
        if not parts:
            continue
        table = spec.sort(spec.check(pa.concat_tables(parts)))
        source = files.digest(table.to_pylist())
        if not run_dir.has_table(name, *place, source):
            run_dir.write_table(name, *place, table, stage=STAGE, source=source)


def _kept(path: Path, digest: str) -> dict[str, Any] | None:
    """A document that was made from these inputs and is whole."""
    marker = files.read_json(path.with_suffix(".done.json"))
    if marker is None or marker.get("inputs") != digest or not path.exists():
        return None
    return files.read_json(path) if files.file_hash(path) == marker.get("sha256") else None


def _write(path: Path, found: Mapping[str, Any], digest: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, dumps(found).encode("ascii"))
    marker = {"inputs": digest, "sha256": files.file_hash(path)}
    files.write_json(path.with_suffix(".done.json"), marker)
