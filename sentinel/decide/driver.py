"""From a `prefix_scores` table to the JSON that `sentinel decide` prints and a run writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sentinel import tables, user_tables
from sentinel.decide.config import DecideConfig
from sentinel.decide.evaluate import Evaluation, evaluate
from sentinel.decide.fit import fit
from sentinel.decide.ladder import Statistic
from sentinel.decide.policy import Policy
from sentinel.decide.table import Floats, agents_of, from_table
from sentinel.errors import UserError
from sentinel.user_tables import dumps as dumps


def decide(
    table: pa.Table, config: DecideConfig | None = None, frozen: Policy | None = None
) -> Iterator[tuple[Policy, Evaluation]]:
    """Fit and evaluate each agent of a table alone, in order of their names.

    With a `frozen` policy nothing is fitted: it is evaluated, at the stakes it was fitted for.

    Raises UserError for a faulty table, an agent without calibration episodes (to fit on), or one
    that is not the frozen policy's.
    """
    config = config or DecideConfig()
    by_agent = "agent" in table.column_names
    if by_agent and not pa.types.is_string(table.schema.field("agent").type):
        try:
            values = table.column("agent").cast(pa.string())
        except pa.ArrowException as error:
            raise UserError(f"column agent: {error}", "write the agents' names as text") from error
        table = table.set_column(table.column_names.index("agent"), "agent", values)
    columns = []
    for agent in agents_of(table):
        part = table.filter(pc.equal(table.column("agent"), agent)) if by_agent else table
        found = from_table(part)
        if frozen is not None and frozen.agent != found.agent:
            raise UserError(
                f"the monitor is of agent {frozen.agent}, the table has {found.agent}",
                f"name the agent: --agent {frozen.agent}",
            )
        if frozen is None and not (found.pool == "calibration").any():
            raise UserError(
                f"agent {agent} has no calibration episodes, so nothing can be fitted",
                "give rows with pool = calibration",
            )
        columns.append(found)
    if not columns:
        raise UserError("the table has no rows", "give rows with pool = calibration and heldout")
    for found in columns:
        policy = frozen or fit(found, config)
        yield policy, evaluate(policy, found, config)


def document(results: Iterable[tuple[Policy, Evaluation]]) -> dict[str, Any]:
    """The printed object: per agent its frozen policy, the policy's hash, and the evaluation."""
    return {
        "version": 1,
        "agents": {
            policy.agent: {
                "policy": policy.to_dict(),
                "policy_hash": policy.hash(),
                "evaluation": evaluation.summary,
            }
            for policy, evaluation in results
        },
    }


def read(path: Path) -> pa.Table:
    """A `prefix_scores` table from Parquet or CSV; see `sentinel.user_tables.read`."""
    return user_tables.read(path, tables.PREFIX_SCORES)


@dataclass(frozen=True)
class Item:
    """One agent of one benchmark, as it travels to a worker."""

    benchmark: str
    agent: str
    table: pa.Table
    policy: Policy
    config: DecideConfig
    draws: Mapping[Statistic, Floats] | None = None


def evaluate_item(item: Item) -> Evaluation:
    """Evaluate a frozen policy; the same on any worker."""
    return evaluate(item.policy, item.table, item.config, draws=item.draws)
