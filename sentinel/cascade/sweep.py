"""The matrix of a cascade: cell × scorer × seeds, cut into blocks that give the same rows anywhere.

A block draws all targets at once for a few consecutive seeds of one cell under one scorer, because
one search serves every target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from sentinel import tables
from sentinel.cascade.config import CascadeConfig
from sentinel.cascade.driver import seeds
from sentinel.cascade.margins import margin_rows, with_margin
from sentinel.cascade.run import ALLOCATIONS, draw, rows, summary
from sentinel.cascade.table import Rounds, from_table
from sentinel.errors import UserError

TARGETS = ("0.8", "0.85", "0.9", "0.95", "0.98", "0.99")
"""The paper's four, and the two of the strict table."""


@dataclass(frozen=True)
class Matrix:
    """What all blocks share: the laid-out cells and the settings.

    Under the `swept` scorers the margins are swept too, on the same draws.
    """

    cells: tuple[Rounds, ...]
    config: CascadeConfig
    swept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeedBlock:
    """Seeds `start` … `stop` − 1 of the cell at `index` of the matrix."""

    index: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        """`seeds-0-4`, both ends included."""
        return f"seeds-{self.start}-{self.stop - 1}"


def matrix(found: Iterable[tuple[str, pa.Table]], config: CascadeConfig) -> Matrix:
    """Check and lay out `round_scores` tables, given with the names that errors show.

    Raises UserError for a faulty table, naming it, or a cell and scorer that two tables hold.
    """
    cells: list[Rounds] = []
    owner: dict[tuple[str, str], str] = {}
    for name, table in found:
        try:
            part = from_table(table, config.gates, config.after_feedback)
        except UserError as error:
            raise UserError(f"{name}: {error.cause}", error.remedy) from error
        for rounds in part:
            key = (rounds.cell, rounds.scorer)
            if key in owner:
                raise UserError(
                    f"{owner[key]} and {name} both hold cell {key[0]} under scorer {key[1]}",
                    "name them apart in the columns cell and scorer",
                )
            owner[key] = name
        cells += part
    return Matrix(tuple(cells), config)


def blocks(whole: Matrix, size: int) -> Iterator[SeedBlock]:
    """Blocks of `size` seeds (fewer in the last) of every cell."""
    for i, rounds in enumerate(whole.cells):
        drawn = seeds(rounds, whole.config)
        for start in drawn[::size]:
            yield SeedBlock(i, start, min(start + size, drawn.stop))


def block(whole: Matrix, part: SeedBlock) -> Mapping[str, pa.Table]:
    """The rows of one block, as the table `cascade_rows`; under a swept scorer `cascade_margins`
    as well."""
    rounds, config = whole.cells[part.index], whole.config
    where = {"cell": rounds.cell, "scorer": rounds.scorer, "mode": config.mode}
    found: list[dict[str, Any]] = []
    margins: list[dict[str, Any]] = []
    for seed in range(part.start, part.stop):
        drawn = draw(rounds, config, seed)
        found += [{**where, "method": config.method, **row} for row in rows(drawn)]
        if rounds.scorer in whole.swept:
            asked = with_margin(config.margin)
            margins += [{**where, **row} for row in margin_rows(drawn, asked)]
    out = {"cascade_rows": tables.CASCADE_ROWS.from_rows(found)}
    if rounds.scorer in whole.swept:
        out["cascade_margins"] = tables.CASCADE_MARGINS.from_rows(margins)
    return out


def input_hash(rounds: Rounds, config: CascadeConfig) -> str:
    """Identity of what a block's rows depend on, but for its seeds: more seeds keep what is done.

    Missing scores hash alike whatever NaN they hold.
    """
    state = hashlib.sha256()
    settings = {k: v for k, v in config.to_dict().items() if k not in ("seed", "seeds")}
    given = None if config.given is None else config.given.values.tobytes()
    state.update(repr((sorted(settings.items()), given)).encode())
    for field in fields(rounds):
        value = getattr(rounds, field.name)
        if not isinstance(value, np.ndarray):
            data = repr(value).encode()
        elif value.dtype == object:
            data = repr(value.tolist()).encode()
        elif value.dtype.kind == "f":
            data = np.where(np.isnan(value), np.nan, value + 0.0).tobytes()
        else:
            data = value.tobytes()
        state.update(f"{field.name} {len(data)} ".encode())
        state.update(data)
    return state.hexdigest()


def summaries(table: pa.Table, targets: Sequence[str]) -> list[dict[str, Any]]:
    """Mean ± sd over seeds of each cell and scorer, from `cascade_rows`; see `run.summary`."""
    out = []
    for (cell, scorer), found in sorted(lines(table, targets).items()):
        drawn = len({row["seed"] for row in found})
        out.append({"cell": cell, "scorer": scorer, "seeds": drawn, "summary": summary(found)})
    return out


def lines(table: pa.Table, targets: Sequence[str]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Rows of each cell and scorer from `cascade_rows`, exactly as `driver.cascade` takes them.

    In the order in which a direct call meets them: sums of floats depend on it.
    """
    cells: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        cells.setdefault((row["cell"], row["scorer"]), []).append({k: row[k] for k in _LINE})
    for found in cells.values():
        found.sort(
            key=lambda r: (
                r["seed"],
                targets.index(r["target"]),
                ALLOCATIONS.index(r["allocation"]),
            )
        )
    return cells


_LINE = ("seed", "target", "allocation", "recall", "savings", "successes", "no_op")
