"""Sections on the run itself: what was collected and labelled, what it ran on, what it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sentinel.report import figures, groups, ladder
from sentinel.report.blocks import (
    Cell,
    Data,
    Facts,
    FigureView,
    Head,
    Row,
    Section,
    TableView,
    count,
    number,
    percent,
    seconds,
    text,
    undefined,
    visible,
)
from sentinel.report.every_monitor import UNJUDGED, judged
from sentinel.report.load import Run
from sentinel.report.results import first_of_each, who
from sentinel.tables import ENDS

STAGES = (
    *("collect", "label", "judge", "activations", "heads", "audit", "probes", "calibrate"),
    *("search", "bootstrap", "report"),
)
LABELS = {
    "strict-2022": "strict: the execution match of the 2022 scorer",
    "strict-2024": "strict: the execution match of the 2024 scorer",
    "typed": "typed equivalence: values compared by type; not a judgement of meaning",
    "success": "the environment's own verdict",
}


def label_words(name: str) -> str:
    """A label policy in plain words."""
    if name.startswith("judge:"):
        return f"semantic: {name} (a model's verdict on strict-wrong answers)"
    return LABELS.get(name, name)


def economics(run: Run) -> Section:
    """Mean steps on the train pool (Appendix K, Table 9)."""
    rows = groups.step_economics(run)
    kinds = {
        "fabrication": "no unanswerable train question was answered",
        "correct_refusal": "no unanswerable train question was refused",
        "typical_answerable": "no answerable train question",
    }
    titles = ("Fabrication", "Correct refusal", "Typical answerable")

    def cell(key: str, reason: str) -> Any:
        def show(row: Row) -> Cell | str:
            value = row[key]
            known = judged(run, row["benchmark"])
            shown = number(value, reason if known else UNJUDGED, 2)
            return shown if value is None else Cell(str(shown), sub=f"N = {row[key + '_n']:,}")

        return show

    data = Data(
        "step_economics",
        ("benchmark", "agent", *(c for k in kinds for c in (k, f"{k}_n"))),
        rows,
    )
    heads = [Head(t, cell(k, r)) for t, (k, r) in zip(titles, kinds.items(), strict=True)]
    table = TableView(
        data,
        "Table 9 · Mean steps",
        (*who(), *heads),
        anchor="table-9",
        notes=(
            "Runs that hit the step cap are no correct refusals and are left out of that column.",
        ),
    )
    svg = figures.bars(
        [ladder.agent_name(run, row) for row in rows],
        [
            (title, [row[key] for row in rows], color)
            for title, key, color in zip(
                titles, kinds, (figures.RED, figures.GREEN, figures.GREY), strict=True
            )
        ],
        ylabel="mean steps",
    )
    figure = FigureView(data, "", svg, "Train pool, episodes with an outcome.")
    return Section(
        "economics",
        "Step economics",
        "What an unanswerable question costs: steps spent before an answer is made up, against "
        "steps before a correct refusal, against a typical answerable question. Train pool.",
        (table, figure) if rows else (table,),
    )


def counts(run: Run) -> Section:
    """Episodes per end, missing outcomes, pools, labels, truncation."""
    pools = Data(
        "pools", ("benchmark", "pool", "questions", "groups", "unanswerable"), groups.pools(run)
    )
    outcomes = Data(
        "episodes",
        (
            "benchmark",
            "agent",
            "engine",
            "episodes",
            "answered",
            "abstained",
            "cap",
            "missing",
            "mean_turns",
            "generated_tokens",
            "prompt_tokens",
            "seconds",
        ),
        groups.outcomes(run),
    )
    ends = Data(
        "ends", ("benchmark", "agent", "pool", "end", "episodes", "turns"), groups.ends(run)
    )
    labels = Data(
        "labels",
        (
            "benchmark",
            "agent",
            "label",
            "version",
            "source",
            "episodes",
            "correct",
            "without_verdict",
        ),
        groups.labels(run),
    )
    truncated = Data(
        "truncation",
        ("benchmark", "agent", "head", "prefixes", "truncated"),
        groups.truncation(run),
    )

    def integer(key: str) -> Any:
        return lambda row: count(row[key])

    seen = [end for end in ENDS if any(row["end"] == end for row in ends.rows)]

    def ended(end: str) -> Any:
        return lambda row: count(row["at"].get(end, 0))

    def share(row: Row) -> Cell | str:
        if not row["prefixes"]:
            return undefined("nothing scored")
        return percent(row["truncated"] / row["prefixes"], digits=2)

    views = (
        TableView(
            pools,
            "Pools",
            (
                Head("Benchmark", text("benchmark"), number=False, varied=True),
                Head("Pool", text("pool"), number=False),
                Head("Questions", integer("questions")),
                Head("Groups", integer("groups")),
                Head("Unanswerable", integer("unanswerable")),
                Head("Share", lambda row: percent(row["unanswerable"] / row["questions"])),
            ),
            notes=(
                "A group (question template) lies in one pool only; intervals resample groups.",
            ),
        ),
        TableView(
            outcomes,
            "Episodes, all pools",
            (
                *who(),
                Head("Episodes", integer("episodes")),
                Head("Answered", integer("answered")),
                Head("Abstained", integer("abstained")),
                Head("Step cap", integer("cap")),
                Head("No outcome", integer("missing")),
                Head("Mean turns", lambda row: number(row["mean_turns"], digits=2)),
                Head("Generated tokens", integer("generated_tokens")),
                Head("Prompt tokens", integer("prompt_tokens")),
                Head("Agent time", lambda row: seconds(row["seconds"])),
                Head("Engine", text("engine"), number=False),
            ),
            notes=(
                "Episodes without an outcome (engine, environment, context, filter, or ended by a "
                "monitor) leave every metric of that agent; they are counted here.",
                "The step cap is scored as an abstention with its own flag.",
                "Agent time is summed over episodes that ran side by side.",
            ),
        ),
        TableView(
            ends,
            "Ends per pool",
            (
                *who(blank=True),
                Head("Pool", text("pool"), number=False),
                *(Head(end.replace("_", " "), ended(end), group="Episodes") for end in seen),
                Head("Turns", integer("turns")),
            ),
            rows=first_of_each(_pools_of(ends.rows)),
        ),
        TableView(
            labels,
            "Labels",
            (
                *who(blank=True),
                Head("Label", text("label"), number=False),
                Head("Episodes", integer("episodes")),
                Head("Correct", integer("correct")),
                Head("No verdict", integer("without_verdict")),
                Head("Decided by", lambda row: visible(row["sources"]), number=False),
                Head("Version", text("version"), number=False),
            ),
            rows=first_of_each(_label_sums(labels.rows)),
            notes=("An abstention is correct where the question is unanswerable.",),
        ),
        TableView(
            truncated,
            "Prefixes that did not fit the heads' window",
            (
                *who(blank=True),
                Head("Head", text("head"), number=False),
                Head("Prefixes", integer("prefixes")),
                Head("Truncated", integer("truncated")),
                Head("Share", share),
            ),
            rows=first_of_each(truncated.rows),
            notes=("Left-truncated: the end of the transcript is always read.",),
        ),
    )
    primary = str(run.config.get("label", "not recorded"))
    return Section(
        "counts",
        "Counts",
        f"What was collected, how it ended, and which rule labelled it. Primary label: {primary} "
        f"({label_words(primary)}).",
        views,
    )


def _pools_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per agent and pool, with the episodes of each end under `at`."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["benchmark"], row["agent"], row["pool"])
        line = found.setdefault(key, {**row, "turns": 0, "at": {}})
        line["at"][row["end"]] = row["episodes"]
        line["turns"] += row["turns"]
    return list(found.values())


def _label_sums(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per agent and label: sums, and how often each rule decided."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[k] for k in ("benchmark", "agent", "label", "version"))
        line = found.setdefault(
            key, {**row, "episodes": 0, "correct": 0, "without_verdict": 0, "sources": ""}
        )
        for name in ("episodes", "correct", "without_verdict"):
            line[name] += row[name]
        line["sources"] += f"{' · ' if line['sources'] else ''}{row['source']} {row['episodes']:,}"
    return list(found.values())


def stages(run: Run) -> Section:
    """Seconds per stage, from metrics.jsonl."""
    rows: list[dict[str, Any]] = [
        {
            "stage": str(m.get("stage", "")),
            "benchmark": m.get("benchmark"),
            "agent": m.get("agent"),
            "seconds": float(m["seconds"]),
            "outcome": m.get("outcome"),
        }
        for m in run.metrics
        if isinstance(m.get("seconds"), int | float) and not isinstance(m.get("seconds"), bool)
    ]
    data = Data("stages", ("stage", "benchmark", "agent", "seconds", "outcome"), rows)
    total: dict[str, float] = {}
    tries: dict[str, int] = {}
    whole = {row["stage"] for row in rows if row["agent"] is None}
    for row in rows:
        if row["agent"] is not None and row["stage"] in whole:
            continue  # part of a time that is there already
        total[row["stage"]] = total.get(row["stage"], 0.0) + row["seconds"]
        tries[row["stage"]] = tries.get(row["stage"], 0) + 1
    order = [s for s in STAGES if s in total] + [s for s in total if s not in STAGES]
    shown = [{"stage": s, "seconds": total[s], "parts": tries[s]} for s in order]
    view = TableView(
        data,
        "",
        (
            Head("Stage", text("stage"), number=False),
            Head("Wall time", lambda row: seconds(row["seconds"])),
            Head("Records", lambda row: count(row["parts"])),
        ),
        rows=shown,
        notes=(
            "Summed over the records of metrics.jsonl, resumed tries included; the stage that "
            "writes this page is recorded after it.",
        ),
    )
    return Section("stages", "Seconds per stage", "", (view,))


def provenance(run: Run) -> Section:
    """The resolved config and what the run ran on."""
    return Section(
        "provenance",
        "Provenance",
        "Enough to run this again: the resolved settings, and what they ran on.",
        (
            Facts("Environment (env.json)", tuple(_flat(run.env)) or (("env.json", "not there"),)),
            Facts("Settings (config.json)", tuple(_flat(run.config))),
        ),
    )


def _flat(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted names and values; long texts are cut."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list) and any(isinstance(v, Mapping | list) for v in value):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{where}[{index}]")
    else:
        words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        words = "—" if value is None else visible(words)
        cut = f"{words[:400]}… ({len(words):,} characters)"
        yield visible(where), words if len(words) <= 400 else cut
