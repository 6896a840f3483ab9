"""`render_report`: a run directory in, one self-contained HTML page out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from sentinel.report.blocks import Data, Section, visible
from sentinel.report.load import load

FOLDER = "report"
"""Folder of the CSV files, beside the page."""


def render_report(
    run_dir: Path, out: Path | None = None, *, title: str | None = None, ledger: Path | None = None
) -> Path:
    """Write the page of a run and one CSV per table and figure; return the page's path.

    Args:
        run_dir: a run directory; it is only read.
        out: the page, default `run_dir/report.html`. The CSV files go to `report/` beside it.
        title: heading of the page, default the run's name.
        ledger: folder of the held-out ledger, default `ledgers/` beside the folder of runs.

    The page makes no network request and holds no script. Raises UserError when `run_dir` is no run
    directory or a table of it is damaged.
    """
    from sentinel.report.sections import build, subtitle, tiles

    run = load(Path(run_dir))
    page = (Path(run_dir) / "report.html" if out is None else Path(out)).absolute()
    looks = Path(run_dir).absolute().parent.parent / "ledgers" if ledger is None else ledger
    sections = build(run, looks)
    heading = title or str(run.config.get("name") or page.parent.name)
    return write_page(page, sections, title=heading, subtitle=subtitle(run), tiles=tiles(run))


def write_page(
    page: Path,
    sections: Sequence[Section],
    *,
    title: str,
    subtitle: Sequence[str] = (),
    tiles: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write the sections as one page, and their data as CSV files beside it; return its path."""
    html = to_html(sections, title=title, subtitle=subtitle, tiles=tiles)
    folder = page.parent / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for data in _all_data(sections):
        _write(folder / f"{data.name}.csv", data.to_csv())
    _write(page, html)
    return page


def to_html(
    sections: Sequence[Section],
    *,
    title: str,
    subtitle: Sequence[str] = (),
    tiles: Sequence[tuple[str, str]] = (),
) -> str:
    """The page as text. Everything from data is escaped; only our own SVG goes in as markup."""
    from jinja2 import DictLoader, Environment, StrictUndefined

    source = files("sentinel.report") / "templates"
    environment = Environment(
        loader=DictLoader({"page": (source / "page.html.j2").read_text(encoding="utf-8")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=False,
        lstrip_blocks=False,
    )
    return environment.get_template("page").render(
        title=visible(title),
        subtitle=[visible(line) for line in subtitle],
        tiles=tiles,
        sections=sections,
        css=(source / "page.css").read_text(encoding="utf-8").strip(),
        folder=quote(FOLDER),
    )


def _all_data(sections: Sequence[Section]) -> Iterator[Data]:
    seen: dict[str, Data] = {}
    for section in sections:
        for block in section.blocks:
            data = getattr(block, "data", None)
            if data is None:
                continue
            if data.name in seen and seen[data.name] is not data:
                raise ValueError(f"two tables of the page are named {data.name}")
            if data.name not in seen:
                seen[data.name] = data
                yield data


def _write(path: Path, text: str) -> None:
    """Whole file or nothing: a reader never meets half a page."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    temporary.replace(path)
