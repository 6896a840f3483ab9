"""How well each scorer tells failures at each round: AUROC with intervals, and after matching."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sentinel.report import figures
from sentinel.report.blocks import (
    Cell,
    Data,
    FigureView,
    Head,
    Row,
    Section,
    TableView,
    number,
    signed,
    span,
    text,
    undefined,
    visible,
)
from sentinel.report.load import Run

NAMES = {
    "probe": "probe",
    "stacking": "stacking",
    "surface": "surface",
    "heads": "text heads",
    "tfidf": "TF–IDF per round",
    "task": "task only",
    "random": "random features",
}
COLORS = {
    "probe": figures.BLUE,
    "stacking": figures.PURPLE,
    "surface": figures.ORANGE,
    "heads": figures.GREEN,
    "tfidf": "#6fae4a",
    "task": figures.RED,
    "random": figures.GREY,
}
PLAIN, MATCHED, GAIN = "failure_auroc", "failure_auroc_matched", "_gain"
COLUMNS = (
    *("benchmark", "agent", "mode", "round", "statistic", "scorer", "against"),
    *("point", "low", "high", "n", "clusters", "resamples", "dropped", "note"),
)
LEAST = 0.03
"""A probe is said to know more than a control where it is ahead by this much, matched."""
CONTROLS = ("surface", "task")


def rows(run: Run) -> list[dict[str, Any]]:
    """The cascade's part of the table `intervals`: a row per agent, mode, round, statistic and
    scorer; `against` names the other scorer of a gain."""
    found = []
    for r in run.table("intervals").to_pylist():
        if not r["statistic"].startswith(PLAIN):
            continue
        mode, _, at = r["stratum"].partition(" r=")
        scorer, _, against = r["system"].partition(" - ")
        found.append(
            {
                "benchmark": r["benchmark"],
                "agent": r["agent"],
                "mode": mode,
                "round": int(at),
                "statistic": r["statistic"],
                "scorer": scorer,
                "against": against or None,
                **{k: r[k] for k in COLUMNS[7:]},
            }
        )
    found.sort(
        key=lambda r: (
            *run.place(r["benchmark"], r["agent"]),
            *(r["mode"], r["statistic"], list(NAMES).index(r["scorer"]), str(r["against"])),
            r["round"],
        )
    )
    return found


def section(run: Run) -> Section | None:
    """AUROC per round of every scorer; None where nothing was measured."""
    found = rows(run)
    if not found:
        return None
    paper = [r for r in found if r["mode"] == "paper"] or found
    plain = [r for r in paper if r["statistic"] == PLAIN]
    matched = any(r["statistic"] == MATCHED for r in paper)
    scorers = [s for s in NAMES if any(r["scorer"] == s for r in plain)]
    data = Data("round_auroc", COLUMNS, found)
    panels = []
    for benchmark, agent in dict.fromkeys((r["benchmark"], r["agent"]) for r in plain):
        mine = [r for r in plain if (r["benchmark"], r["agent"]) == (benchmark, agent)]
        lines = []
        for k, scorer in enumerate(scorers):
            at = [r for r in mine if r["scorer"] == scorer and r["point"] is not None]
            if at:
                lines.append(
                    figures.Line(
                        NAMES[scorer],
                        [r["round"] + (0.03 * (k - 2) if k else 0) for r in at],
                        [r["point"] for r in at],
                        COLORS[scorer],
                        dots=True,
                        dashed=scorer in ("task", "random"),
                        sd=[_half(r) for r in at] if k == 0 else (),
                    )
                )
        empty = "" if lines else "one class: undefined"
        panels.append(figures.Panel(f"{benchmark}/{agent}", lines, empty))
    figure = FigureView(
        data,
        "",
        figures.line_panels(
            panels, xlabel="round", ylabel="AUROC for failure", baseline=0.5, whole_x=True
        ),
        f"Out-of-fold AUROC for eventual failure among the episodes alive at each round. Bars on "
        f"{NAMES[scorers[0]]}: half the width of its 95 % cluster interval. Dashed: controls.",
    )
    statistics = (PLAIN, MATCHED) if matched else (PLAIN,)
    groups = {PLAIN: "AUROC", MATCHED: "AUROC within equal depth"}
    views = tuple(
        TableView(
            data,
            groups[statistic],
            (*_who(), *(Head(NAMES[s], _at(s, statistic)) for s in scorers)),
            rows=_pivot([r for r in paper if r["statistic"] == statistic]),
            notes=(
                "95 % cluster bootstrap over task groups, scores fixed. N: episodes alive with a "
                "known outcome and a score.",
                *(
                    ("Only pairs of a failure and a success of equal depth are compared.",)
                    if statistic == MATCHED
                    else ()
                ),
            ),
        )
        for statistic in statistics
    )
    lead = (
        "One model per round and scorer, all on the same folds, so that no fold explains a "
        "difference. Random features have the width of the hidden state."
    )
    if not matched:
        lead += " No task has a depth here, so nothing could be matched."
    return Section("round-auroc", "Cascade: AUROC per round", lead, (figure, *views))


def claims(run: Run, found: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Per agent the round at which the probe is furthest ahead of surface **and** task-only, after
    matching: `ahead` is the smaller of the two gains, `shows` whether both are ≥ 0.03 with their
    intervals above 0. Without matched AUROCs the plain ones stand in, and `matched` says so."""
    found = rows(run) if found is None else found
    paper = [r for r in found if r["mode"] == "paper" and r["scorer"] == "probe"]
    out = []
    for benchmark, agent in dict.fromkeys((r["benchmark"], r["agent"]) for r in paper):
        mine = [r for r in paper if (r["benchmark"], r["agent"]) == (benchmark, agent)]
        matched = any(r["statistic"] == MATCHED + GAIN for r in mine)
        gains = {
            (r["round"], r["against"]): r
            for r in mine
            if r["statistic"] == (MATCHED if matched else PLAIN) + GAIN
        }
        best: dict[str, Any] | None = None
        for r in sorted({at for at, _ in gains}):
            pair = [gains.get((r, control)) for control in CONTROLS]
            if any(g is None or g["point"] is None for g in pair):
                continue
            shows = all(g["point"] >= LEAST and (g["low"] or 0) > 0 for g in pair if g)
            ahead = min(g["point"] for g in pair if g)
            line: dict[str, Any] = {"round": r, "shows": shows, "ahead": ahead}
            for control, gain in zip(CONTROLS, pair, strict=True):
                assert gain is not None
                line |= {f"{control}{'_' + k if k else ''}": gain[k or "point"] for k in _ENDS}
                line["n"] = gain["n"]
            if best is None or (shows, ahead) > (best["shows"], best["ahead"]):
                best = line
        if best is not None:
            out.append({"benchmark": benchmark, "agent": agent, "matched": matched, **best})
    return out


_ENDS = ("", "low", "high")
CLAIM = (
    *("benchmark", "agent", "round", "matched", "n", "ahead", "shows"),
    *(f"{c}{e}" for c in CONTROLS for e in ("", "_low", "_high")),
)


def claim(run: Run) -> Section | None:
    """Does the hidden state know more than behaviour and task; None where it was not compared."""
    found = claims(run)
    if not found:
        return None
    good = sum(r["shows"] for r in found)

    def gain(control: str) -> Callable[[Row], Cell | str]:
        def cell(row: Row) -> Cell | str:
            shown = signed(row[control])
            ends = span(row[f"{control}_low"], row[f"{control}_high"])
            return Cell(str(shown), sub=ends or "no interval", strong=bool(row["shows"]))

        return cell

    table = TableView(
        Data("probe_gain", CLAIM, found),
        "",
        (
            Head("Benchmark", text("benchmark"), number=False, varied=True),
            Head("Agent", text("agent"), number=False),
            Head("Round", lambda r: str(r["round"])),
            Head("N", lambda r: f"{r['n']:,}"),
            Head("Probe − surface", gain("surface")),
            Head("Probe − task only", gain("task")),
            Head("Ahead of both", lambda r: "yes" if r["shows"] else "no", number=False),
        ),
        notes=(
            "Per agent the round at which the smaller of the two gains is largest; ahead of both: "
            f"each gain ≥ {LEAST} and its 95 % interval above 0. Six rounds are looked at and no "
            "correction is made for that.",
            "Paired cluster bootstrap: both scorers on the same episodes and resamples. AUROC of "
            "a control below ½ counts as ½, so that nothing is gained by its bad luck.",
        ),
    )
    depth = "within equal depth" if all(r["matched"] for r in found) else "not matched by depth"
    lead = (
        f"On {good} of {len(found)} agents the probe is ahead of the surface features and of the "
        f"task alone at some round, {depth}."
    )
    return Section("probe-gain", "Cascade: what the hidden state adds", lead, (table,))


def _who() -> tuple[Head, ...]:
    return (
        Head("Benchmark", lambda r: visible(r["benchmark"]), number=False, varied=True),
        Head("Agent", lambda r: visible(r["agent"]) if r["first"] else "", number=False),
        Head("Round", lambda r: str(r["round"])),
        Head("N", lambda r: f"{max(x['n'] for x in r['at'].values()):,}"),
    )


def _at(scorer: str, statistic: str) -> Callable[[Row], Cell | str]:
    def cell(row: Row) -> Cell | str:
        found = row["at"].get(scorer)
        if found is None:
            return undefined("not among the scorers of this mode")
        shown = number(found["point"], "one class at this round, or no score")
        if isinstance(shown, Cell):
            return shown
        return Cell(shown, sub=_ends(found))

    return cell


def _ends(row: Mapping[str, Any]) -> str:
    if row["low"] is None or row["high"] is None:
        return str(row["note"] or "")
    return f"[{row['low']:.3f}, {row['high']:.3f}]"


def _half(row: Mapping[str, Any]) -> float | None:
    return None if row["low"] is None else (row["high"] - row["low"]) / 2


def _pivot(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per agent and round, the scorers under `at`."""
    out: dict[tuple[Any, ...], dict[str, Any]] = {}
    before = None
    for row in sorted(found, key=lambda r: r["round"]):
        key = (row["benchmark"], row["agent"], row["round"])
        out.setdefault(key, {**row, "at": {}})["at"][row["scorer"]] = row
    order = list(dict.fromkeys((r["benchmark"], r["agent"]) for r in found))
    lines = sorted(
        out.values(), key=lambda r: (order.index((r["benchmark"], r["agent"])), r["round"])
    )
    for line in lines:
        line["first"] = (line["benchmark"], line["agent"]) != before
        before = (line["benchmark"], line["agent"])
    return lines
