"""`sentinel status RUN_DIR`: what is done and what is missing, from files alone.

`--follow` goes on until the run is over; it also asks Slurm's queue about jobs that were submitted.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from jobs.causes import causes
from jobs.config import RunConfig
from jobs.results import has_result
from jobs.run import recorded_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RUN_DIR and the form of the output."""
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument(
        "--follow", action="store_true", help="print what changes until the run is over"
    )


def main(args: argparse.Namespace) -> int:
    """Print the state of a run; 3 when something is missing."""
    root = args.run_dir.expanduser().absolute()
    config = recorded_config(root)
    if args.follow:
        return follow(root)
    state = sweep_status(root, config) if config.sweep else status(root, config)
    if args.json:
        print(json.dumps(state, indent=1, allow_nan=False))
    else:
        print("\n".join(lines(state)))
    return 0 if state["complete"] else 3


def follow(root: Path) -> int:
    """Print what changes until the run is over, then its state; 3 when something is missing."""
    from jobs import follow as following

    config = recorded_config(root)

    def state() -> dict[str, Any]:
        return sweep_status(root, config) if config.sweep else status(root, config)

    following.follow(root, lambda: _followed(state()))
    end = state()
    end["jobs"] = following.as_json(following.jobs(root, following.ask_queue(root)))
    print("\n".join(lines(end)))
    return 0 if end["complete"] else 3


def _followed(state: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """What following prints, by what it is about: what matters, and what changes all the time."""
    found = {}
    for s in state["stages"]:
        count = "" if s["complete"] or not s["of"] else f" {s['done']}/{s['of']} agents"
        mark = f"{s['stage']}:{' done' if s['complete'] else count}"
        if s["complete"] or s["done"] or s["progress"]:
            found[s["stage"]] = (mark, f", {s['progress']}" if s["progress"] else "")
    for one in state.get("elements", []):
        done = [s["stage"] for s in one["stages"] if s["complete"]]
        found[one["element"]] = (f"{one['element']}: {', '.join(done) or 'nothing'} done", "")
    return found


def sweep_status(root: Path, config: RunConfig) -> dict[str, Any]:
    """The state of a sweep: that of each element."""
    from jobs import follow as following
    from jobs import sweep_run

    found = [(place.name, status(place, one)) for place, one in sweep_run.elements(config, root)]
    return {
        "run_dir": str(root),
        "name": config.name,
        "complete": all(state["complete"] for _, state in found),
        "stages": [],
        "elements": [{"element": name, **state} for name, state in found],
        "jobs": following.as_json(following.jobs(root, following.seen(root))),
        "report": None,
    }


def status(root: Path, config: RunConfig) -> dict[str, Any]:
    """Per stage: agents done of all, finished items, what is missing, seconds of every try."""
    from cluster import exits
    from cluster.run_dir import RunDir
    from jobs import follow as following

    run_dir = RunDir(root)
    seconds = _seconds(run_dir.metrics_path)
    stages = []
    for stage in config.stages:
        pairs = [(b.name, a.name) for b, a in config.pairs]
        if stage == "report":
            pairs, done = [], []
            complete, missing = run_dir.report_path.exists(), ["report.html"]
        else:
            done = [p for p in pairs if has_result(config, run_dir, stage, *p)]
            complete = len(done) == len(pairs)
            missing = ["/".join(p) for p in pairs if p not in done]
        live = [] if complete else progress_of(run_dir.root, stage)
        stages.append(
            {
                "stage": stage,
                "complete": complete,
                "done": len(done),
                "of": len(pairs),
                "items": _items(run_dir.root, stage),
                "missing": [] if complete else missing,
                "seconds": seconds.get(stage),
                "progress": "; ".join(map(told, live)) or None,
                "live": live,
                "causes": causes(run_dir.metrics_path, stage),
            }
        )
    return {
        "run_dir": str(root),
        "name": config.name,
        "complete": all(s["complete"] for s in stages),
        "stages": stages,
        "spent_usd": _spent(root),
        "monitored": [
            found for b, a in config.pairs if (found := exits.summary(run_dir, b.name, a.name))
        ],
        "jobs": following.as_json(following.jobs(root, following.seen(root))),
        "report": str(run_dir.report_path) if run_dir.report_path.exists() else None,
    }


def lines(state: dict[str, Any]) -> list[str]:
    """The state as lines for a terminal, ending in the next command."""
    from cluster.exits import told as told_exits

    out = [f"{state['name']}  {state['run_dir']}"]
    for s in state["stages"]:
        agents = f"{s['done']}/{s['of']} agents" if s["of"] else ""
        items = f"{s['items']} items" if s["items"] else ""
        spent = f"{s['seconds']:.1f} s" if s["seconds"] is not None else ""
        mark = "done   " if s["complete"] else "missing"
        out.append(f"  {s['stage']:10} {mark} {agents:14} {items:12} {spent}".rstrip())
        if not s["complete"] and s["done"]:
            out.append(f"             missing: {', '.join(s['missing'])}")
        if s["progress"]:
            out.append(f"             last seen: {s['progress']}")
        out += [f"             met: {cause}" for cause in s["causes"]]
    for one in state.get("elements", []):
        done = sum(s["complete"] for s in one["stages"])
        mark = "done   " if one["complete"] else "missing"
        out.append(f"  {one['element']:40} {mark} {done}/{len(one['stages'])} stages")
    out += [f"  {told_exits(found)}" for found in state.get("monitored", [])]
    if state.get("spent_usd") is not None:
        out.append(f"  paid to APIs: ${state['spent_usd']:,.2f}")
    out += _jobs(state["jobs"])
    if state["report"]:
        out.append(f"report: {state['report']}")
    if not state["complete"]:
        out.append(f"go on with: sentinel run --run-dir '{state['run_dir']}'")
    return out


def _spent(root: Path) -> float | None:
    """Dollars of every reply that the run's APIs billed; None without any such agent."""
    from cluster.engines.openai_spend import SpendReader

    folder = root / "spend"
    return round(SpendReader(folder).total(), 6) if folder.is_dir() else None


def _items(root: Path, stage: str) -> int:
    """Finished items: markers, and complete lines of the journals of collection."""
    folder = root / "parts" / stage
    markers = sum(1 for _ in folder.rglob("*.done.json"))
    return markers + sum(_whole_lines(path) for path in folder.rglob("*.jsonl"))


def _whole_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def _seconds(path: Path) -> dict[str, float]:
    """Wall seconds of each stage over all tries; a torn line is passed over."""
    total: dict[str, float] = {}
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return total
    for line in raw.split(b"\n"):
        try:
            row = json.loads(line)
            if row.get("event") == "seconds":
                total[row["stage"]] = total.get(row["stage"], 0.0) + float(row["seconds"])
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return total


def _jobs(rows: list[dict[str, Any]]) -> list[str]:
    from cluster.job_record import Look
    from jobs import follow as following

    return following.lines([Look(**row) for row in rows])


def progress_of(root: Path, stage: str) -> list[dict[str, Any]]:
    """What a stage last told of itself: its driver, and each element that ran beside it.

    `state` is `silent` for one that says it runs and has not written for a minute: it was killed,
    or its node is gone. `silent_seconds` says since when.
    """
    from cluster.files import read_json, safe_name
    from cluster.progress import SILENT_SECONDS, silent_seconds

    folder, found = root / "progress", []
    elements = sorted(folder.glob(f"{safe_name(f'{stage}@')}*.json"))
    for path in (folder / f"{stage}.json", *elements):
        value = read_json(path)
        if value is None:
            continue
        if value.get("state") == "running":
            try:
                age = silent_seconds(path)
            except OSError:  # gone meanwhile
                continue
            value["silent_seconds"] = round(age, 1)
            if age > SILENT_SECONDS:
                value["state"] = "silent"
        found.append(value)
    return found


def told(value: dict[str, Any]) -> str:
    """A progress file as words: `312/2160 episodes, 3 failed, 2/2 busy, 810 tokens/s, ETA 4 min`.

    Rates and replicas are those of a stage that runs.
    """
    from cluster.progress import duration, numbers

    running = value.get("state") == "running"
    parts = [f"{value.get('done')}/{value.get('total')} {value.get('unit', 'items')}"]
    parts += [f"{value['failed']} failed"] if value.get("failed") else []
    parts += numbers(value.get("counts") or {}, running)
    parts += [str(value["note"])] if value.get("note") else []
    if value.get("eta_seconds") and running:
        parts.append(f"ETA {duration(value['eta_seconds'])}")
    if value.get("state") == "silent":
        where = f" on {value['host']}" if value.get("host") else ""
        parts.append(f"stopped answering {duration(value['silent_seconds'])} ago{where}")
    return ", ".join([*parts, *([value["state"]] if value.get("state") == "failed" else [])])
