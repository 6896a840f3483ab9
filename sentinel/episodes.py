"""Episodes and turns: rows of two tables, a line of the journal, and the text the heads read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sentinel.agent.react import SQL_DIALECT, Dialect

_WHERE = ("benchmark", "agent", "episode_id")


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call: exactly the columns of `tables.TURNS`, in their order.

    `logprobs` has n values, `top_ids` and `top_logprobs` n·5 in rows of five; all are plain numbers
    (the float32 values of the engine, exactly).
    """

    benchmark: str
    agent: str
    episode_id: str
    turn: int
    prompt_ids: list[int] | None = None
    prompt_is_full: bool = True
    generated_ids: list[int] | None = None
    finish_reason: str = "stop"
    text: str = ""
    kind: str = "malformed"
    thought: str = ""
    action: str = ""
    best_so_far: str | None = None
    forgiven: list[str] = field(default_factory=list)
    observation: str = ""
    rendered: str = ""
    status: str = "none"
    n_rows: int | None = None
    n_cols: int | None = None
    prompt_tokens: int = 0
    generated_tokens: int = 0
    logprobs: list[float] | None = None
    top_ids: list[int] | None = None
    top_logprobs: list[float] | None = None
    engine_seconds: float | None = None
    env_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """What a frozen monitor decided of an episode: the columns of `tables.EXITS`, without keys."""

    monitor: str
    policy: str
    exit_time: int
    exit_by: str | None = None
    delivered: bool | None = None
    p_answerable: float | None = None
    p_prefix: float | None = None
    p_delivery: float | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Episode:
    """One agent on one task: exactly the columns of `tables.EPISODES`, its turns as `steps`, and
    `exit` where a monitor watched it."""

    benchmark: str
    agent: str
    episode_id: str
    task_id: str
    group: str
    rollout: int
    end: str
    turns: int
    action: str | None = None
    answer: str | None = None
    answer_error: str | None = None
    success: bool | None = None
    error: str | None = None
    prefix_property: bool | None = None
    prompt_tokens: int = 0
    generated_tokens: int = 0
    agent_hash: str = ""
    engine: str = ""
    environment: str | None = None
    cost_usd: float | None = None
    seconds: float | None = None
    started_at: float | None = None
    worker: str | None = None
    host: str | None = None
    attempt: int | None = None
    steps: list[Turn] = field(default_factory=list)
    exit: Exit | None = None


_EPISODE_COLUMNS = tuple(f.name for f in fields(Episode) if f.name not in ("steps", "exit"))
_TURN_COLUMNS = tuple(f.name for f in fields(Turn))
_TURN_KEYS = tuple(name for name in _TURN_COLUMNS if name not in _WHERE)
_NUMBERS = ("logprobs", "top_logprobs")


def episode_id(benchmark: str, agent: str, task_id: str, rollout: int) -> str:
    """The id of an episode: benchmark/agent/task_id/rollout."""
    return f"{benchmark}/{agent}/{task_id}/{rollout}"


def to_rows(episode: Episode) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The row of `episodes` and the rows of `turns`.

    A lone surrogate, which no table can hold, becomes its escape in text (`\\ud800`).
    """
    row = {name: _storable(getattr(episode, name)) for name in _EPISODE_COLUMNS}
    turns = [{n: _storable(getattr(t, n)) for n in _TURN_COLUMNS} for t in episode.steps]
    return row, turns


def from_rows(episode: Mapping[str, Any], turns: Sequence[Mapping[str, Any]]) -> Episode:
    """The episode of a row of `episodes` and its rows of `turns`, in any order.

    Raises ValueError when the turns are not exactly 1…T of this episode.
    """
    steps = sorted((Turn(**{n: row[n] for n in _TURN_COLUMNS}) for row in turns), key=_number)
    found = Episode(**{name: episode[name] for name in _EPISODE_COLUMNS}, steps=steps)
    if [s.turn for s in steps] != list(range(1, found.turns + 1)):
        raise ValueError(f"episode {found.episode_id} has {found.turns} turns, not these rows")
    if any(s.episode_id != found.episode_id for s in steps):
        raise ValueError(f"episode {found.episode_id} was given another episode's turns")
    return found


def exit_row(episode: Episode) -> dict[str, Any] | None:
    """The row of `exits`; None where no monitor watched."""
    if episode.exit is None:
        return None
    return {**{name: getattr(episode, name) for name in _WHERE}, **asdict(episode.exit)}


def stored(episode: Episode) -> Episode:
    """The episode so far as its tables would give it back: what is fitted on them reads that."""
    return from_rows(*to_rows(episode))


def to_json_line(episode: Episode) -> str:
    """One line of pure ASCII JSON without a newline, from which the episode comes back exactly."""
    data: dict[str, Any] = {name: getattr(episode, name) for name in _EPISODE_COLUMNS}
    data["steps"] = [_turn_data(turn) for turn in episode.steps]
    if episode.exit is not None:
        data["exit"] = asdict(episode.exit)
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def from_json_line(line: str | bytes) -> Episode:
    """The episode that `to_json_line` wrote; raises ValueError for any other line."""
    try:
        data = json.loads(line)
        steps, found = data.pop("steps"), data.pop("exit", None)
        if data.keys() != set(_EPISODE_COLUMNS) or any(s.keys() != set(_TURN_KEYS) for s in steps):
            raise ValueError("not the fields of an episode")
        where = {name: data[name] for name in _WHERE}
        turns = [Turn(**where, **{k: _read(k, v) for k, v in step.items()}) for step in steps]
        episode = Episode(**data, steps=turns, exit=None if found is None else Exit(**found))
    except (AttributeError, KeyError, TypeError, RecursionError) as cause:
        raise ValueError(f"not an episode: {cause}") from cause
    if [t.turn for t in turns] != list(range(1, episode.turns + 1)):
        raise ValueError(f"episode {episode.episode_id} has lost turns")
    return episode


def render(
    question: str,
    turns: Sequence[Turn],
    t: int,
    episode: Episode | None = None,
    dialect: Dialect = SQL_DIALECT,
    *,
    feedback: bool = True,
) -> str:
    """What the heads read after t turns: the question, then thought, action and result per step.

    Every section is one line, so that no thought, action or cell can forge another one. Only a
    closing turn adds the committed action with its result, or the abstention, and only t = T of an
    episode that ran into the cap says so. `BEST_SO_FAR` is not rendered.

    Raises ValueError unless 0 ≤ t ≤ len(turns).
    """
    if not 0 <= t <= len(turns):
        raise ValueError(f"an episode of {len(turns)} turns has no snapshot {t}")
    lines = [f"QUESTION: {one_line(question)}"]
    for i, turn in enumerate(turns[:t], start=1):
        if turn.thought:
            lines.append(f"STEP {i} THOUGHT: {one_line(turn.thought)}")
        if turn.kind == "abstain":
            lines.append(f"{dialect.abstain} (abstained)")
        elif turn.kind == "final":
            lines.append(f"{dialect.final}: {one_line(turn.action)}")
            if feedback or i < t:
                lines.append(f"{dialect.observation}: {one_line(turn.rendered)}")
        else:
            if turn.action:
                lines.append(f"STEP {i} {dialect.act}: {one_line(turn.action)}")
            if feedback or i < t:
                lines.append(f"STEP {i} {dialect.observation}: {one_line(turn.rendered)}")
    if feedback and episode is not None and t == len(turns) and episode.end == "cap":
        lines.append("(no answer: step cap)")
    return "\n".join(lines)


_BREAK = re.compile("\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def one_line(text: str) -> str:
    """The text without line breaks: each becomes a visible `\\n`.

    >>> one_line("select 1\\nfrom t")
    'select 1\\\\nfrom t'
    """
    return _BREAK.sub(r"\\n", text.strip())


def _number(turn: Turn) -> int:
    return turn.turn


def _turn_data(turn: Turn) -> dict[str, Any]:
    data = {name: getattr(turn, name) for name in _TURN_KEYS}
    for name in _NUMBERS:
        values = data[name]
        if values is not None and not all(map(math.isfinite, values)):
            data[name] = [v if math.isfinite(v) else str(v) for v in values]
    return data


def _read(name: str, value: Any) -> Any:
    if name in _NUMBERS and value is not None:
        return [float(v) for v in value]  # "-inf" is how a line spells minus infinity
    return value


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [_storable(v) for v in value]
    return value
