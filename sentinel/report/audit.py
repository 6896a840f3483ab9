"""The audit on the page (Appendices A, C and M): baselines, controls, seeds, the encoder rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sentinel import tables
from sentinel.report import shared_encoder
from sentinel.report.blocks import (
    Cell,
    Data,
    Head,
    Row,
    Section,
    TableView,
    count,
    number,
    span,
    text,
    undefined,
    visible,
)
from sentinel.report.load import Run
from sentinel.report.results import first_of_each, who

TARGETS = ("correctness", "answerability")
BASELINES = {
    ("head", "t=T"): "head at delivery",
    ("head", "t=0"): "head on the question",
    ("question-only", "-"): "question-only TF–IDF",
    ("transcript", "-"): "transcript TF–IDF",
    ("telemetry", "ent_mean"): "mean entropy",
    ("telemetry", "ent_max"): "max entropy",
    ("telemetry", "lp_mean"): "mean log-prob.",
    ("ending-only", "-"): "ending only",
}
CONTROLS = {
    "shuffled-tfidf": "TF–IDF over episodes",
    "shuffled-loop": "training loop",
}
ENCODER_COLUMNS = (
    *("benchmark", "agent", "head", "encoder", "against", "auroc", "auroc_against", "delta"),
    *("low", "high", "margin", "adopted", "note"),
)


def rows(run: Run) -> list[dict[str, Any]]:
    """Rows of the table `audit`, in the order of the config."""
    found = run.table("audit").to_pylist()
    return sorted(found, key=lambda r: run.place(r["benchmark"], r["agent"]))


def section(run: Run) -> Section:
    """Baselines against the head, controls, duplicates, seed variance, encoder rule."""
    found = rows(run)
    data = Data("audit", tuple(tables.AUDIT.columns), found)
    return Section(
        "audit",
        "Audit battery (Appendix A)",
        "Train pool, out-of-fold: does a head read the outcome, or an artefact? " + _verdict(found),
        (
            *(_baselines(found, data), _controls(found, data), _seeds(found, data)),
            encoder_rule(run),
            *shared_encoder.views(run),
        ),
    )


def _verdict(found: Sequence[Row]) -> str:
    tested = [r for r in found if r["passed"] is not None]
    if not found:
        return "The stage audit has not been run."
    failed = [r for r in tested if not r["passed"]]
    if not failed:
        return f"All {len(tested)} checks that can fail have passed."
    names = dict.fromkeys(f"{r['check']} of {r['agent']}" for r in failed)
    return f"{len(failed)} of {len(tested)} checks FAILED: {visible(', '.join(names))}."


def _baselines(found: Sequence[Row], data: Data) -> TableView:
    lines: dict[tuple[str, str, str], dict[str, Any]] = {}
    for r in found:
        name = (r["check"], r["variant"])
        if name in BASELINES or r["check"] == "head":
            key = (r["benchmark"], r["agent"], r["target"])
            line = lines.setdefault(key, {**r, "at": {}})
            line["at"][name] = r

    def cell(name: tuple[str, str]) -> Callable[[Row], Cell | str]:
        def show(row: Row) -> Cell | str:
            r = row["at"].get(name) or row["at"].get((name[0], "-"))
            if r is None:
                return undefined("an ending says nothing of correctness")
            value = number(r["value"], r["note"] or "undefined")
            if isinstance(value, Cell):
                return value
            ends = span(r["low"], r["high"]).replace("+", "") or r["note"] or ""
            return Cell(value, sub=f"{ends}\nN = {r['n']:,}" if ends else f"N = {r['n']:,}")

        return show

    shown = sorted(lines.values(), key=lambda r: TARGETS.index(r["target"]))
    shown.sort(key=lambda r: list(dict.fromkeys((x["benchmark"], x["agent"]) for x in found)).index(
        (r["benchmark"], r["agent"])
    ))  # fmt: skip
    return TableView(
        data,
        "Baselines: AUROC without a head",
        (
            *who(blank=True),
            Head("Target", text("target"), number=False),
            *(Head(title, cell(name)) for name, title in BASELINES.items()),
        ),
        rows=first_of_each(shown),
        notes=(
            "Pooled out-of-fold AUROC with its 95 % template interval. TF–IDF and logistic "
            "regression over episodes, on the heads' folds. Entropy and log-probability at T are "
            "not trained. Ending only: abstained ⇒ unanswerable; the step cap is no abstention.",
        ),
    )


def _controls(found: Sequence[Row], data: Data) -> TableView:
    shown = [
        r
        for r in found
        if r["check"] in (*CONTROLS, "duplicates")
        and not (r["check"] == "shuffled-tfidf" and (r["note"] or "").startswith("off"))
    ]

    def name(row: Row) -> str:
        if row["check"] == "duplicates":
            return "same rendering in two folds"
        return f"shuffled labels, {CONTROLS[row['check']]}"

    def statistic(row: Row) -> Cell | str:
        if row["check"] == "duplicates":
            return count(int(row["value"]))
        return number(row["fold_mean"], row["note"] or "undefined")

    def band(row: Row) -> str:
        if row["check"] == "duplicates":
            return "0"
        return "" if row["low"] is None else f"{row['low']:.3f} – {row['high']:.3f}"

    def pooled(row: Row) -> Cell | str:
        if row["check"] == "duplicates" or row["value"] is None:
            return ""
        return number(row["value"])

    def verdict(row: Row) -> Cell | str:
        if row["passed"] is None:
            return undefined(row["note"] or "undefined")
        if row["passed"]:
            return "passed"
        return Cell("FAILED", sub=visible(row["note"] or ""), strong=True)

    return TableView(
        data,
        "Controls: where nothing may be found",
        (
            *who(blank=True),
            Head("Control", name, number=False),
            Head("Target", lambda r: "" if r["target"] == "-" else r["target"], number=False),
            Head("Which", lambda r: "" if r["variant"] == "-" else r["variant"], number=False),
            Head("Mean of folds", statistic),
            Head("Accepted", band),
            Head("Pooled", pooled),
            Head("Episodes", lambda r: count(r["n"])),
            Head("", verdict, number=False),
        ),
        rows=first_of_each(shown),
        notes=(
            "Labels permuted over episodes, same folds. Tested is the mean of the per-fold AUROCs "
            "against ½ ± 3·√((n₁+n₀+1)/(12·n₁·n₀)); pooled out-of-fold AUROC of shuffled labels "
            "lies below ½ and is not tested.",
            "Folds train on one another's labels, so their AUROCs are not independent: in "
            "simulation chance alone left this band in about 3 of 100 controls, not in 3 of 1,000.",
            "Training loop: one permutation through the fit of the correctness head, every prefix.",
        ),
    )


def _seeds(found: Sequence[Row], data: Data) -> TableView:
    lines = [r for r in found if r["check"] == "seed-sd"]
    of: dict[tuple[str, ...], list[Row]] = {}
    for r in found:
        if r["check"] == "seeds":
            of.setdefault((r["benchmark"], r["agent"], r["target"]), []).append(r)

    def seeds(row: Row) -> str:
        mine = of.get((row["benchmark"], row["agent"], row["target"]), [])
        return " · ".join(f"{r['value']:.3f}" for r in mine if r["value"] is not None)

    def spread(row: Row) -> Cell | str:
        value = number(row["value"], row["note"] or "undefined", 4)
        return value if isinstance(value, Cell) else f"± {value}"

    return TableView(
        data,
        "Seed variance of the heads (Appendix M)",
        (
            *who(blank=True),
            Head("Head", text("target"), number=False),
            Head("SD", spread),
            Head("AUROC of each seed", seeds, number=False),
        ),
        rows=first_of_each(lines),
        anchor="seed-variance",
        notes=("Pooled out-of-fold AUROC at delivery, one per head seed; SD with n − 1.",),
    )


def encoder_rule(run: Run) -> TableView:
    """The rule on another encoder (Appendix C), from `sentinel compare-encoders`."""
    found = list(encoder_rows(run.encoder_rule))

    asked = run.encoder_rule.get("against")

    def adopted(row: Row) -> Cell | str:
        if asked is not None and row["against"] != asked:
            return ""  # the cheap baseline stands beside; nobody asks to adopt it
        if row["adopted"] is None:
            return undefined(str(row["note"] or "undefined"))
        return "adopt" if row["adopted"] else "keep"

    def delta(row: Row) -> Cell | str:
        value = number(row["delta"], str(row["note"] or "undefined"))
        if isinstance(value, Cell):
            return value
        return Cell(value, sub=span(row["low"], row["high"]))

    return TableView(
        Data("encoder_rule", ENCODER_COLUMNS, found),
        "Encoder rule (Appendix C)",
        (
            *who(blank=True),
            Head("Head", text("head"), number=False),
            Head("Encoder", text("encoder"), number=False),
            Head("AUROC", lambda r: number(r["auroc"])),
            Head("Against", text("against"), number=False),
            Head("AUROC", lambda r: number(r["auroc_against"])),
            Head("Difference", delta),
            Head("Rule", adopted, number=False),
        ),
        rows=first_of_each(found),
        anchor="encoder-rule",
        notes=(
            "A stronger encoder is adopted, head by head, if its out-of-fold AUROC is better by "
            "0.02 or more."
            if found
            else "Not run: `sentinel compare-encoders` writes encoder_rule.json into the run.",
        ),
    )


def encoder_rows(document: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Flat rows of `encoder_rule.json`: one per benchmark, agent and head."""
    return [
        {**dict.fromkeys(ENCODER_COLUMNS), **{k: r[k] for k in ENCODER_COLUMNS if k in r}}
        for r in document.get("rows", ())
    ]
