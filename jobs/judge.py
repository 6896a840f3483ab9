"""`sentinel judge`: a model's verdict on the answers that the strict scorer rejects.

Every verdict goes into a cache by content before it is used, so a run that dies or is stopped has
lost nothing, and equal questions of all agents (with `judge.cache_dir`: of all runs) are paid for
once. The verdicts are rows of the table `labels` under `judge:MODEL:PROMPT-HASH`; what was shown,
replied and paid is the table `judgements`. An answer that could not be judged has a row with its
error, and the next run asks about it again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import files
from cluster.compacted import BROKEN
from cluster.head_stages import Where
from cluster.label_stages import LABEL
from sentinel.errors import UserError
from sentinel.judge.rules import is_asked

if TYPE_CHECKING:
    from cluster.pool import Cluster
    from cluster.run_dir import RunDir
    from jobs.config import RunConfig
    from jobs.judge_section import JudgeSection

STAGE = "judge"
VERSION = 1
"""Raised whenever a rule changes what finished parts would hold."""
LATER = ("heads", "probes")
"""Stages whose finished work holds the verdicts of the primary label."""


def run(config: RunConfig, run_dir: RunDir, cluster: Cluster) -> None:
    """Judge what is not judged yet. Agents without labels are left out (`status` names them).

    Raises UserError for a judge that cannot be asked (no key, no such model, no room on the disk).
    """
    section = _section(config)
    places = [
        Where(str(run_dir.root), benchmark.name, agent.name)
        for benchmark, agent in config.pairs
        if run_dir.table_path("labels", benchmark.name, agent.name).exists()
    ]
    hashes = {where: _input_hash(run_dir, where, section) for where in places}
    todo = [w for w in places if not _finished(config, run_dir, w, hashes[w])]
    if todo:
        from jobs.stopping import run_async

        with files.no_space(run_dir.root):
            try:
                run_async(_judge_all(config, run_dir, todo, hashes))
            except UserError as error:
                raise _told(error, section) from error
    for where in places:
        run_dir.compact(LABEL, where.benchmark, where.agent, ["labels", "judgements"])


def check_start(config: RunConfig, run_dir: RunDir, stages: Sequence[str]) -> None:
    """What can be known of the judge before anything runs.

    Raises UserError for a label of a judge that the run does not have, a key that is missing or
    refused, a server out of reach, and a cache that cannot be written.
    """
    section = config.judge
    foreign = section is None or section.label != config.label
    if config.label.startswith("judge:") and foreign and "label" in stages:
        have = f"the run's judge is {section.label}" if section else "the run has no judge"
        if not all(_has_label(run_dir, b.name, a.name, config.label) for b, a in config.pairs):
            raise UserError(
                f"no label {config.label!r}: {have}",
                "set label=judge beside a judge: section, or label=typed",
            )
    if section is None or STAGE not in stages or all_complete(config, run_dir):
        return
    from cluster.judge_cache import VerdictCache

    VerdictCache(cache_folder(section, run_dir)).close()
    check_server(section)


def check_server(section: JudgeSection) -> None:
    """Ask the judge's server for its models, which costs nothing; UserError where it is no use."""
    from cluster.engines import openai

    try:
        openai.check(section.engine())
    except UserError as error:
        raise _told(error, section) from error


def cache_folder(section: JudgeSection, run_dir: RunDir) -> Path:
    """Where verdicts are kept by content."""
    return Path(section.cache_dir) if section.cache_dir else run_dir.root / "judge" / "cache"


def unjudged(run_dir: RunDir, benchmark: str, agent: str, label: str) -> int | None:
    """Answers of an agent that this judge has no verdict on; None where it was not asked yet."""
    marker = files.read_json(run_dir.marker_path(LABEL, benchmark, agent, label))
    part = run_dir.part_path(LABEL, benchmark, agent, label, "judgements")
    if marker is None:
        return None
    try:
        return int(files.read_parquet(part)["correct"].null_count)
    except BROKEN:  # the stage does it again
        return None


def is_complete(config: RunConfig, run_dir: RunDir, benchmark: str, agent: str) -> bool:
    """Whether the judge is done with an agent, but for as many answers as are tolerated."""
    if config.judge is None:
        return False
    left = unjudged(run_dir, benchmark, agent, config.judge.label)
    return left is not None and left <= config.judge.tolerated


def all_complete(config: RunConfig, run_dir: RunDir) -> bool:
    """Whether no question is left, tolerated or not."""
    label = _section(config).label
    return all(unjudged(run_dir, b.name, a.name, label) == 0 for b, a in config.pairs)


def holds(config: RunConfig, run_dir: RunDir) -> bool:
    """Whether later stages must wait: their label is the judge's, and it lacks verdicts."""
    if config.judge is None or config.label != config.judge.label:
        return False
    return any(
        not is_complete(config, run_dir, b.name, a.name)
        for b, a in config.pairs
        if run_dir.table_path("labels", b.name, a.name).exists()
    )


async def _judge_all(
    config: RunConfig, run_dir: RunDir, places: list[Where], hashes: dict[Where, str]
) -> None:
    from cluster.engines import openai
    from cluster.judge_cache import VerdictCache
    from cluster.judge_cases import strict_rows
    from cluster.progress import Progress
    from jobs.judge_agent import AgentAnswers

    section = _section(config)
    settings = section.engine() | {"spend_dir": str(run_dir.root / "spend")}
    if config.collect.budget_usd is not None:
        settings["budget_usd"] = config.collect.budget_usd
    rows = {where: strict_rows(where, section.strict) for where in places}
    total = sum(is_asked(row) for found in rows.values() for row in found)
    engine = openai.make(settings)
    try:
        with (
            closing(VerdictCache(cache_folder(section, run_dir))) as cache,
            Progress(STAGE, total, unit="answers", run_dir=run_dir) as progress,
        ):
            stopped: str | None = None
            for where in places:
                progress.note = f"{where.benchmark}/{where.agent}"
                work = AgentAnswers(section, where, rows[where], cache)
                stopped = await work.ask(engine, progress, stopped)
                work.commit(run_dir, hashes[where])
    finally:
        await engine.close()
    if stopped is not None:
        print(f"sentinel: the judge was stopped: {stopped}", file=sys.stderr)


def _section(config: RunConfig) -> JudgeSection:
    if config.judge is None:
        raise UserError("the run has no judge", "add a judge: section with its model")
    return config.judge


def _finished(config: RunConfig, run_dir: RunDir, where: Where, input_hash: str) -> bool:
    """Whether an agent is judged. What lacks a verdict is asked again, unless that is tolerated and
    later stages hold the verdicts of this label already."""
    section, place = _section(config), (where.benchmark, where.agent)
    if not run_dir.is_done(LABEL, *place, section.label, input_hash):
        return False
    left = unjudged(run_dir, *place, section.label) or 0
    if not left:
        return True
    used = config.label == section.label and any(
        any(run_dir.parts(stage, *place).glob("*.done.json")) for stage in LATER
    )
    return used and left <= section.tolerated


def _input_hash(run_dir: RunDir, where: Where, section: JudgeSection) -> str:
    """Of the parts of the label stage, and of what the judge is."""
    place = where.benchmark, where.agent
    parts = {}
    for item in run_dir.items(LABEL, *place):
        marker = files.read_json(run_dir.marker_path(LABEL, *place, item)) or {}
        if "features" in marker.get("tables", {}):  # not another judge's part
            parts[item] = marker.get("input_hash")
    return files.digest([VERSION, section.label, parts])


def _has_label(run_dir: RunDir, benchmark: str, agent: str, label: str) -> bool:
    if not run_dir.table_path("labels", benchmark, agent).exists():
        return False
    return label in set(run_dir.read("labels", benchmark, agent)["label"].to_pylist())


def _told(error: UserError, section: JudgeSection) -> UserError:
    """The API engine's error in the words of this section."""
    cause = error.cause.replace(f"agent judge:{section.model}", f"judge {section.model}")
    remedy = error.remedy.replace("the agent's config", "the judge: section")
    if remedy == "change temperature in the config":
        remedy = "a judge answers at temperature 0: name a model that takes it"
    return UserError(cause, remedy)
