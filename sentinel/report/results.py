"""Sections on what the monitors achieve: the cross-agent table, the ladder, coverage, savings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sentinel.report import figures, ladder
from sentinel.report.blocks import (
    Cell,
    Data,
    FigureView,
    Head,
    Row,
    Section,
    TableView,
    count,
    number,
    percent,
    seconds,
    signed,
    undefined,
    visible,
)
from sentinel.report.every_monitor import UNJUDGED, judged
from sentinel.report.load import Run
from sentinel.report.operating import early_mode, exact_bar
from sentinel.report.who import first_of_each, who

CellOf = Callable[[Row], Cell | str]
__all__ = [
    "CellOf",
    "cross_agent",
    "cross_rows",
    "first_of_each",
    "savings",
    "system_ladder",
    "who",
]
CROSS_COLUMNS = (
    *("benchmark", "agent", "lam", "questions", "groups", "always_abstain", "vanilla_accuracy"),
    *("auroc_correctness", "auroc_answerability"),
    *("rs_vanilla", "rs_vanilla_low", "rs_vanilla_high"),
    *("rs_full", "rs_full_low", "rs_full_high", "dagger"),
    *("full_minus_abstain", "full_minus_abstain_low", "full_minus_abstain_high"),
    *("full_minus_abstain_clusters", "full_minus_abstain_note"),
    *("full_minus_vanilla", "full_minus_vanilla_low", "full_minus_vanilla_high"),
    *("full_minus_vanilla_clusters", "full_minus_vanilla_note"),
)
DAGGER = (
    "† the 95 % interval of (system − always abstain) excludes 0; bold: and lies above. "
    "Intervals: template-cluster bootstrap, percentile, thresholds fixed; they do not cover the "
    "choice of thresholds."
)


def cross_rows(run: Run) -> list[dict[str, Any]]:
    """One row per benchmark, agent and λ: the paper's Table 1 with its intervals (Table 4)."""
    found = []
    for monitor in run.monitors:
        evaluation = monitor.evaluation
        auroc = {
            row["target"]: row["point"]
            for row in evaluation.get("auroc", ())
            if row["t"] == "T" and row["score"] == "head"
        }
        played = {(r["system"], str(r["lam"])): r for r in ladder.of_monitor(monitor)}
        for lam in ladder.lambdas(played.values()):
            vanilla, full = played["vanilla", lam], played["full", lam]
            row: dict[str, Any] = {
                "benchmark": monitor.benchmark,
                "agent": monitor.agent,
                "lam": lam,
                "questions": evaluation.get("episodes"),
                "groups": evaluation.get("groups"),
                "always_abstain": evaluation.get("always_abstain"),
                "vanilla_accuracy": vanilla["accuracy"],
                "auroc_correctness": auroc.get("correctness"),
                "auroc_answerability": auroc.get("answerability"),
                "dagger": bool(full["dagger"]),
            }
            for name, source in (("rs_vanilla", vanilla), ("rs_full", full)):
                row |= {name: source["rs"]}
                row |= {f"{name}_{end}": source[f"rs_{end}"] for end in ("low", "high")}
            for other in ("abstain", "vanilla"):
                name, source_name = f"full_minus_{other}", f"rs_minus_{other}"
                row[name] = full[source_name]
                for part in ("low", "high", "clusters", "note"):
                    row[f"{name}_{part}"] = full[f"{source_name}_{part}"]
            found.append(row)
    return found


def cross_agent(run: Run) -> Section:
    """Table 1 and Table 4, with a forest plot."""
    rows = cross_rows(run)
    data = Data("cross_agent", CROSS_COLUMNS, rows)
    stakes = ladder.lambdas(rows)
    shown = ladder.pivot([{**row, "system": "full"} for row in rows])

    def lacks(row: Row) -> str:
        return "one class" if judged(run, row["benchmark"]) else UNJUDGED

    def at(lam: str, name: str, mark: bool = False) -> CellOf:
        return lambda row: ladder.score(row["at"].get(lam), name, mark=mark)

    def columns(group: str, name: str, mark: bool = False) -> list[Head]:
        return [Head(ladder.stake(lam), at(lam, name, mark), group=group) for lam in stakes]

    def difference(name: str) -> Callable[[str], CellOf]:
        def make(lam: str) -> CellOf:
            def cell(row: Row) -> Cell | str:
                line = row["at"].get(lam)
                shown = ladder.score(line, name, digits=3)
                if line is None or isinstance(shown, str) or shown.reason:
                    return shown
                low, high = line[f"{name}_low"], line[f"{name}_high"]
                clear = low is not None and (low > 0 or high < 0)
                groups = f"{line[f'{name}_clusters']} groups differ"
                words = shown.sub if low is None else f"{shown.sub}\n{groups}"
                return Cell(shown.text, sub=words, strong=clear)

            return cell

        return make

    def agent(row: Row) -> Cell | str:
        size = f"{row['questions']:,} questions\n{row['groups']:,} groups"
        return Cell(visible(row["agent"]), sub=size)

    main = TableView(
        data,
        "Table 1 · Reliability Score on the held-out pool",
        (
            who()[0],
            Head("Agent", agent, number=False),
            Head(
                "Accuracy", lambda r: percent(r["vanilla_accuracy"], "no answer"), group="Vanilla"
            ),
            Head(
                "Corr.", lambda r: number(r["auroc_correctness"], "one class"), group="Head AUROC"
            ),
            Head("Ans.", lambda r: number(r["auroc_answerability"], lacks(r)), group="Head AUROC"),
            *columns("Vanilla RS(λ)", "rs_vanilla"),
            *columns("Full system RS(λ)", "rs_full", mark=True),
            Head("Always abstain", lambda r: signed(r["always_abstain"], digits=2)),
        ),
        rows=shown,
        anchor="table-1",
        notes=(
            DAGGER,
            "Accuracy: of the answers the agent commits; an answer to an unanswerable question is "
            "wrong. Always abstain scores the unanswerable share at every λ, on the same "
            "questions.",
        ),
    )
    against = TableView(
        data,
        "Table 4 · Full system minus always abstain, and minus the vanilla agent",
        (
            *who(),
            *(
                Head(ladder.stake(lam), difference(f"full_minus_{other}")(lam), group=title)
                for other, title in (("abstain", "− always abstain"), ("vanilla", "− vanilla"))
                for lam in stakes
            ),
        ),
        rows=shown,
        anchor="table-4",
        notes=(
            "Bold: the interval excludes 0. Fewer than ten groups with a non-zero difference, "
            "or no "
            "delivered answer, give no interval: “too few groups” and their number in brackets.",
        ),
    )
    figure = FigureView(
        data,
        "",
        _forest(run, rows, stakes),
        "Full system minus always abstain (blue) and minus the vanilla agent (orange), 95 % "
        "intervals; a hollow dot has none.",
    )
    return Section(
        "cross-agent",
        "Across agents",
        "RS(λ) gives +1 for a right answer and for refusing an unanswerable question, 0 for "
        "refusing "
        "an answerable one, −λ otherwise. Thresholds come from the calibration pool and are "
        "frozen; "
        "the held-out pool is read once per monitor.",
        (main, against, figure) if rows else (main,),
    )


def _forest(run: Run, rows: Sequence[Row], stakes: Sequence[str]) -> str:
    blocks = []
    for lam in stakes:
        lines = []
        for row in (r for r in rows if str(r["lam"]) == lam):
            pair = [
                figures.Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"], color)
                for name, color in (
                    ("full_minus_abstain", figures.BLUE),
                    ("full_minus_vanilla", figures.ORANGE),
                )
            ]
            lines.append((ladder.agent_name(run, row), pair))
        blocks.append((ladder.stake(lam), lines))
    return figures.forest(
        blocks,
        xlabel="difference in RS(λ)",
        legend=(("full − always abstain", figures.BLUE), ("full − vanilla", figures.ORANGE)),
    )


def system_ladder(run: Run, data: Data) -> Section:
    """Tables 3 and 7: every system, its score, what it delivers and how well."""
    stakes = ladder.lambdas(data.rows)
    shown = first_of_each(ladder.pivot(data.rows))

    def cell(lam: str, name: str) -> CellOf:
        if name == "accuracy":
            return lambda row: ladder.share(row["at"].get(lam), name, "no answer was delivered")
        if name == "coverage":
            return lambda row: ladder.share(row["at"].get(lam), name, "no question")
        return lambda row: ladder.score(row["at"].get(lam), name, mark=True)

    def exits(lam: str) -> CellOf:
        def show(row: Row) -> Cell | str:
            line = row["at"].get(lam)
            if line is None:
                return undefined("this system was not played at this λ")
            return " / ".join(f"{line[f'exits_{by}']:,}" for by in ("gate", "stop", "chow"))

        return show

    system = Head("System", lambda row: ladder.system_name(row), number=False)
    names = (*who(blank=True), system)
    scores = TableView(
        data,
        "Table 7 · The ladder",
        (
            *names,
            *(Head(ladder.stake(lam), cell(lam, "rs"), group="RS(λ)") for lam in stakes),
            *(
                Head(ladder.stake(lam), exits(lam), group="Ended by gate / stop / Chow")
                for lam in stakes
            ),
        ),
        rows=shown,
        anchor="table-7",
        notes=(
            DAGGER,
            "The full system carries every claim; early exit is the resource-aware mode. Chow "
            "alone "
            "and the exact bar (λ+ε)/(1+λ) stand beside the ladder.",
        ),
    )
    operating = TableView(
        data,
        "Table 3 · Coverage and accuracy",
        (
            *names,
            *(Head(ladder.stake(lam), cell(lam, "coverage"), group="Coverage") for lam in stakes),
            *(Head(ladder.stake(lam), cell(lam, "accuracy"), group="Accuracy") for lam in stakes),
        ),
        rows=shown,
        anchor="table-3",
        notes=("Coverage: delivered answers per question. Accuracy: right answers per delivered.",),
    )
    return Section("ladder", "The ladder", "", (scores, operating, exact_bar(data)))


def savings(run: Run, data: Data) -> Section:
    """Tables 2 and 8: what was never spent."""
    first = ladder.lambdas(data.rows)[:1]
    # The gate does not depend on λ and Chow saves no steps: one row stands for every λ.
    kept = [
        row
        for row in data.rows
        if row["system"] == "early-exit" or (row["system"] == "full" and str(row["lam"]) in first)
    ]

    def name(row: Row) -> str:
        early = row["system"] == "early-exit"
        return f"early exit, {ladder.stake(row['lam'])}" if early else "full system, any λ"

    def score(row: Row) -> Cell | str:
        return ladder.score(row, "rs") if row["system"] == "early-exit" else ""

    view = TableView(
        data,
        "Table 2 · Never spent",
        (
            *who(blank=True),
            Head("System", name, number=False),
            Head("RS(λ)", score),
            Head("Steps", lambda r: ladder.share(r, "steps_saved", "no steps"), group="Saved"),
            Head("Tokens", lambda r: percent(r["tokens_saved"], "no counts"), group="Saved"),
            Head(
                "Time, serial",
                lambda r: seconds(r["seconds_saved_serial"], "no serial timed rerun"),
                group="Saved",
            ),
            Head(
                "Time, as run",
                lambda r: percent(r["seconds_share_concurrent"], "not recorded"),
                group="Saved",
            ),
            Head("Ans. head", lambda r: count(r["passes_answerability"]), group="Monitor passes"),
            Head("Corr. head", lambda r: count(r["passes_correctness"]), group="Monitor passes"),
        ),
        rows=first_of_each(kept),
        anchor="table-2",
        notes=(
            "Shares of the steps and generated tokens of all completed held-out episodes. Monitor "
            "passes are printed beside the savings, not subtracted from them.",
            "Time, serial = steps saved × seconds per step of a serial timed rerun. Time, as run: "
            "seconds of episodes that ran side by side, so a share and no clock time.",
            "The gate read at the last step turns an answer into an abstention and saves nothing.",
        ),
    )
    early = [r for r in kept if r["system"] == "early-exit"]
    agents = list(dict.fromkeys(ladder.name_of(r) for r in early))
    by = {(ladder.name_of(r), str(r["lam"])): r for r in early}
    palette = (figures.BLUE, figures.ORANGE, figures.GREEN, figures.PURPLE, figures.RED)
    svg = figures.bars(
        [ladder.agent_name(run, {"benchmark": b, "agent": a}) for b, a in agents],
        [
            (
                ladder.stake(lam),
                [_percent_of(by.get((agent, lam))) for agent in agents],
                palette[i % len(palette)],
            )
            for i, lam in enumerate(ladder.lambdas(early))
        ],
        ylabel="steps saved, %",
    )
    figure = FigureView(data, "", svg, "Early-exit mode: share of agent steps never run.")
    return Section(
        "savings",
        "Savings in early-exit mode",
        "Stopping as soon as the calibrated per-step estimate falls below the stop threshold.",
        (view, early_mode(data), figure) if early else (view, early_mode(data)),
    )


def _percent_of(row: Row | None) -> float | None:
    value = None if row is None else row["steps_saved"]
    return None if value is None else 100 * value
