"""`render_cascade`: what `sentinel cascade` found, as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sentinel.report import (
    cascade_budget,
    cascade_cost,
    cascade_frontier,
    cascade_margins,
    cascade_simulated,
)
from sentinel.report import cascade_results as results
from sentinel.report.blocks import Row, Section, visible
from sentinel.report.cascade_rows import Document, modes, targets
from sentinel.report.render import write_page

MODES = {
    "strict": "Mode strict: disjoint samples; one look at the tested sample. Whether something is "
    "promised is said per policy.",
    "paper": "Mode paper: splits re-drawn by seed over the same episodes. Nothing on this page is "
    "promised.",
}


def render_cascade(
    document: Document,
    rows: Sequence[Row],
    out: Path,
    *,
    simulated: Mapping[str, Sequence[Row]] | None = None,
    title: str = "Abort cascade",
) -> Path:
    """Write the page and one CSV per table and figure; return the page's path.

    Args:
        document: the object that `sentinel.cascade.cascade` returns and `--json` prints.
        rows: the margin sweep, as `sentinel.cascade.margins.margin_sweep` yields; may be empty.
        out: the page. The CSV files go to `report/` beside it.
        simulated: draws from a known law, as `sentinel.cascade.simulated.simulated_rows` gives;
            without them the page has no such section.
        title: heading of the page.

    The page makes no network request and holds no script; every number on it is the document's.
    """
    return write_page(
        Path(out).absolute(),
        build(document, rows, simulated),
        title=title,
        subtitle=subtitle(document),
        tiles=tiles(document),
    )


def render_sweep(found: Document, out: Path, *, title: str = "Abort cascade: sweep") -> Path:
    """The page of a sweep over cells, scorers and seeds: frontier, recall, cost; return its path.

    Args:
        found: mode, settings, and per cell and scorer the `summary` over its seeds, as
            `cascade-sweep.json` holds them; `missing` blocks are named.
        out: the page. The CSV files go to `report/` beside it.
        title: heading of the page.
    """
    missing = [visible(name) for name in found.get("missing", ())]
    facts = results.settings(found, *((("missing blocks", ", ".join(missing)),) if missing else ()))
    return write_page(
        Path(out).absolute(),
        [
            *cascade_frontier.sections(found),
            cascade_cost.section(found),
            Section("settings", "Settings", "", (facts,)),
        ],
        title=title,
        subtitle=subtitle(found),
    )


def build(
    document: Document,
    rows: Sequence[Row],
    simulated: Mapping[str, Sequence[Row]] | None = None,
) -> list[Section]:
    """All sections in the order of the page."""
    return [
        results.section(document),
        *cascade_frontier.sections(document),
        *cascade_budget.sections(document),
        cascade_margins.section(document, rows),
        cascade_cost.section(document),
        *([cascade_simulated.section(simulated)] if simulated and simulated["methods"] else []),
        results.gate_section(document),
        results.sample_section(document),
    ]


def subtitle(document: Document) -> list[str]:
    """What was asked, and in which mode."""
    settings = document["settings"]
    cells = {c["cell"] for c in document["cells"]}
    scorers = {c["scorer"] for c in document["cells"]}
    return [
        f"{_many(len(cells), 'cell')}, {_many(len(scorers), 'scorer')}; targets "
        f"{', '.join(settings['targets'])}; {modes(document)}, gates {settings['gate']} at rounds "
        f"1–{settings['gates']}.",
        MODES[document["mode"]] + " A dash is an undefined value.",
    ]


def tiles(document: Document) -> list[tuple[str, str]]:
    """Headline numbers: promises first, then the range of savings and recall."""
    found = [target for _, target in targets(document)]
    kept = [t for t in found if t["guarantee"]["guaranteed"]]
    promised = [t for t in found if t["guarantee"].get("holds")]
    tested = f"{len(promised)} of {len(found)}"
    passed = "policies pass their test on unseen successes"
    if len(promised) > len(kept):
        passed += f", {len(promised) - len(kept)} of them under conditions named below"
    if document["mode"] == "paper" or document["settings"]["method"] == "margin":
        passed = "policies promise anything: a margin is not tested on unseen successes"
    return [
        (tested, passed),
        (_span([t["test"]["savings"] for t in found]), "test savings, first split, over policies"),
        (_span([t["test"]["recall"] for t in found]), "test recall, first split, over policies"),
    ]


def _many(n: int, word: str) -> str:
    return f"{n} {word}" + ("" if n == 1 else "s")


def _span(values: Sequence[float | None]) -> str:
    known = sorted(v for v in values if v is not None)
    if not known:
        return "—"
    ends = dict.fromkeys(f"{100 * v:.1f}" for v in (known[0], known[-1]))
    return " – ".join(ends) + " %"
