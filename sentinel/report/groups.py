"""Group-bys over the run's tables: what ended how, what is missing, what effort cost. DuckDB."""

from __future__ import annotations

from typing import Any

from sentinel.report.load import Run
from sentinel.tables import OUTCOME_ENDS

ECONOMICS = ("fabrication", "correct_refusal", "typical_answerable")


def query(run: Run, sql: str) -> list[dict[str, Any]]:
    """Rows of a DuckDB query over the tables of the run."""
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET enable_external_access = false")
        for name in ("tasks", "episodes", "labels", "scores"):
            connection.register(name, run.table(name))
        cursor = connection.execute(sql)
        names = [column[0] for column in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    # In the order of the config, as everywhere on the page.
    return sorted(rows, key=lambda row: run.place(row["benchmark"], row.get("agent", "")))


def ends(run: Run) -> list[dict[str, Any]]:
    """Episodes per agent, pool and end."""
    return query(
        run,
        """
        SELECT e.benchmark, e.agent, coalesce(t.pool, 'unknown') AS pool, e."end",
               count(*)::BIGINT AS episodes, sum(e.turns)::BIGINT AS turns
        FROM episodes e LEFT JOIN tasks t USING (benchmark, task_id)
        GROUP BY ALL ORDER BY ALL
        """,
    )


def outcomes(run: Run) -> list[dict[str, Any]]:
    """Per agent: episodes, those without an outcome, turns, tokens, accuracy in no pool."""
    listed = ", ".join(f"'{end}'" for end in OUTCOME_ENDS)
    return query(
        run,
        f"""
        SELECT benchmark, agent, any_value(engine) AS engine, count(*)::BIGINT AS episodes,
               count(*) FILTER ("end" = 'answered')::BIGINT AS answered,
               count(*) FILTER ("end" = 'abstained')::BIGINT AS abstained,
               count(*) FILTER ("end" = 'cap')::BIGINT AS cap,
               count(*) FILTER ("end" NOT IN ({listed}))::BIGINT AS missing,
               avg(turns) AS mean_turns, sum(generated_tokens)::BIGINT AS generated_tokens,
               sum(prompt_tokens)::BIGINT AS prompt_tokens, sum(seconds) AS seconds
        FROM episodes GROUP BY benchmark, agent ORDER BY benchmark, agent
        """,
    )


def step_economics(run: Run) -> list[dict[str, Any]]:
    """Mean steps on the train pool (Appendix K, Table 9).

    Fabrication: an answer to an unanswerable question. Correct refusal: an explicit abstention on
    one; runs that hit the step cap are excluded. Typical answerable: every answerable question with
    an outcome.
    """
    listed = ", ".join(f"'{end}'" for end in OUTCOME_ENDS)
    return query(
        run,
        f"""
        WITH ended AS (
            SELECT e.benchmark, e.agent, e.turns, e."end", t.answerable
            FROM episodes e JOIN tasks t USING (benchmark, task_id)
            WHERE t.pool = 'train' AND e."end" IN ({listed})
        )
        SELECT benchmark, agent,
               avg(turns) FILTER (NOT answerable AND "end" = 'answered') AS fabrication,
               count(*) FILTER (NOT answerable AND "end" = 'answered')::BIGINT AS fabrication_n,
               avg(turns) FILTER (NOT answerable AND "end" = 'abstained') AS correct_refusal,
               count(*) FILTER (NOT answerable AND "end" = 'abstained')::BIGINT
                   AS correct_refusal_n,
               avg(turns) FILTER (answerable) AS typical_answerable,
               count(*) FILTER (answerable)::BIGINT AS typical_answerable_n
        FROM ended GROUP BY benchmark, agent ORDER BY benchmark, agent
        """,
    )


def pools(run: Run) -> list[dict[str, Any]]:
    """Questions, groups and unanswerable questions per pool."""
    return query(
        run,
        """
        SELECT benchmark, pool, count(*)::BIGINT AS questions,
               count(DISTINCT "group")::BIGINT AS groups,
               count(*) FILTER (NOT answerable)::BIGINT AS unanswerable
        FROM tasks GROUP BY benchmark, pool ORDER BY benchmark, pool
        """,
    )


def truncation(run: Run) -> list[dict[str, Any]]:
    """Share of scored prefixes that did not fit the heads' window."""
    return query(
        run,
        """
        SELECT benchmark, agent, head, count(*)::BIGINT AS prefixes,
               count(*) FILTER (truncated)::BIGINT AS truncated
        FROM scores GROUP BY benchmark, agent, head ORDER BY benchmark, agent, head
        """,
    )


def labels(run: Run) -> list[dict[str, Any]]:
    """Verdicts per label policy and the rule that decided."""
    return query(
        run,
        """
        SELECT benchmark, agent, label, version, source, count(*)::BIGINT AS episodes,
               count(*) FILTER (correct)::BIGINT AS correct,
               count(*) FILTER (correct IS NULL)::BIGINT AS without_verdict
        FROM labels GROUP BY ALL ORDER BY ALL
        """,
    )
