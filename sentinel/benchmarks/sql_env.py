"""Text-to-SQL as an Environment: an action is a query, an observation is its result."""

from __future__ import annotations

from sentinel.agent.react import Action
from sentinel.benchmarks.base import Status, Step, Task
from sentinel.sql.observe import observation, rendered
from sentinel.sql.result import Result
from sentinel.sql.sandbox import SandboxPool


class SqlEnvironment:
    """One question over a database in a sandbox.

    The pool is shared with other episodes and outlives them; an episode holds nothing in it. The
    query runs exactly as the model wrote it. A `FINAL_SQL` that raises or times out is a committed
    answer without a result: done, with `error`, and wrong under every label.
    """

    def __init__(
        self, pool: SandboxPool, task: Task, *, max_rows: int = 10, max_chars: int = 2000
    ) -> None:
        self._pool, self._task = pool, task
        self._max_rows, self._max_chars = max_rows, max_chars

    async def reset(self) -> str:
        """The first user message."""
        return f"QUESTION: {self._task.text}"

    async def step(self, action: Action) -> Step:
        """Execute an exploratory or a final query; an abstention executes nothing."""
        if action.kind == "abstain":
            return Step("", "none", done=True)
        if action.kind not in ("act", "final"):
            raise ValueError(f"the environment was given a {action.kind} turn")
        result = await self._pool.aquery(action.text)
        final = action.kind == "final"
        return Step(
            observation=observation(result, self._max_rows, self._max_chars),
            status=_status(result),
            done=final,
            rendered=rendered(result),
            n_rows=None if result.error is not None else result.n_rows,
            n_cols=None if result.error is not None else result.n_cols,
            answer=result.to_json() if final and result.error is None else None,
            error=result.error,
            seconds=result.seconds,
        )

    async def close(self) -> None:
        """Nothing: the pool belongs to the benchmark."""


def _status(result: Result) -> Status:
    if result.error is not None:
        return "error"
    return "ok" if result.rows else "empty"
