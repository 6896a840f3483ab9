"""The episode loop: every end, exact turn rows, exact ids."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from scripted_engine import ScriptedEngine, generation
from tiny_tokenizers import FORGETFUL, QWEN3, write_tokenizer

from sentinel import episodes, tables
from sentinel.agent.chat import ChatEncoder
from sentinel.agent.loop import run_episode, run_task
from sentinel.agent.react import SQL_DIALECT, Action, Dialect
from sentinel.benchmarks.base import Step, Task
from sentinel.engine import ContextOverflow, EngineError, Refusal, Stop
from sentinel.errors import UserError

TASK = Task("toy", "q1", "g1", "how many?", answerable=True)


@dataclass
class Counting:
    """Answers every query with its number; may fail where told."""

    fail: str = ""
    opened: int = 0
    closed: int = 0
    done_after: int | None = None
    seen: list[Action] = field(default_factory=list)

    async def reset(self) -> str:
        self.opened += 1
        if self.fail == "reset":
            raise OSError("no database")
        return f"QUESTION: {TASK.text}"

    async def step(self, action: Action) -> Step:
        self.seen.append(action)
        if self.fail == "step":
            raise RuntimeError("the world broke")
        n = len(self.seen)
        if action.kind == "abstain":
            return Step("", "none", done=True)
        if action.kind == "final":
            return Step(f"{n} rows", "ok", done=True, rendered="short", answer='{"n":1}')
        return Step(f"{n} rows", "ok", n_rows=n, n_cols=1, done=n == self.done_after, success=True)

    async def close(self) -> None:
        self.closed += 1
        if self.fail == "close":
            raise RuntimeError("will not close")


def run(
    script: list[Any], env: Counting | None = None, encoder: ChatEncoder | None = None, **kw: Any
) -> tuple[episodes.Episode, ScriptedEngine]:
    engine = ScriptedEngine(script, encoder, kw.pop("window", 100_000))
    env = env or Counting()
    settings = {"agent_name": "a", "benchmark": "toy", **kw}
    episode = asyncio.run(run_episode(engine, encoder, env, TASK, **settings))
    assert (env.opened, env.closed) == (1, 1)
    row, turns = episodes.to_rows(episode)
    tables.EPISODES.from_rows([row])
    tables.TURNS.from_rows(turns)
    assert episodes.from_json_line(episodes.to_json_line(episode)) == episode
    return episode, engine


@pytest.fixture
def encoder(tmp_path: Path) -> ChatEncoder:
    return ChatEncoder.from_folder(write_tokenizer(tmp_path))


def test_look_then_answer() -> None:
    script = ["THOUGHT: look\nSQL: select 1", "FINAL_SQL: select 2\nBEST_SO_FAR: select 3"]
    episode, engine = run(script, system_prompt="be good")
    assert (episode.end, episode.turns, episode.action) == ("answered", 2, "select 2")
    assert (episode.answer, episode.answer_error) == ('{"n":1}', None)
    assert episode.episode_id == "toy/a/q1/0"
    assert episode.engine == engine.revision, "log-probabilities are the engine's and its version's"
    first, second = episode.steps
    assert (first.kind, first.thought, first.action) == ("act", "look", "select 1")
    assert (first.observation, first.rendered, first.status) == ("1 rows", "1 rows", "ok")
    assert (second.kind, second.rendered, second.best_so_far) == ("final", "short", "select 3")
    assert episode.generated_tokens == first.generated_tokens + second.generated_tokens
    assert [m.role for m in engine.requests[1].messages] == ["system", "user", "assistant", "user"]
    assert engine.requests[1].messages[-1].content == "RESULT: 1 rows"
    assert engine.requests[0].seed != engine.requests[1].seed


def test_abstention_is_an_end() -> None:
    episode, _ = run(["THOUGHT: not stored\nFINAL: null"])
    assert (episode.end, episode.turns, episode.action, episode.answer) == (
        "abstained",
        1,
        None,
        None,
    )
    assert episode.steps[0].status == "none"


def test_malformed_turns_count_and_are_told() -> None:
    episode, engine = run(["hello", "", "FINAL_SQL: select 1"])
    assert (episode.end, episode.turns) == ("answered", 3)
    assert [s.status for s in episode.steps] == ["malformed", "malformed", "ok"]
    told = engine.requests[1].messages[-1].content
    assert told.startswith("RESULT: error: the turn has no action. Reply with one action")
    assert "FINAL: null" in told


def test_the_cap_belongs_to_the_runner() -> None:
    env = Counting()
    episode, engine = run(["SQL: select 1"], env, max_turns=8)
    assert (episode.end, episode.turns, len(engine.requests), len(env.seen)) == ("cap", 8, 8, 8)
    assert episode.answer is None
    assert run(["nonsense"], max_turns=3)[0].turns == 3


def test_a_truncated_answer_is_no_answer() -> None:
    cut = generation("FINAL_SQL: select 1", finish_reason="length")
    episode, _ = run([cut, "FINAL_SQL: select 2"])
    assert [s.kind for s in episode.steps] == ["malformed", "final"]
    assert episode.action == "select 2"


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (ContextOverflow("too long"), "context"),
        (Refusal("filtered"), "content_filter"),
        (EngineError("no route"), "engine_error"),
        (generation("", finish_reason="content_filter"), "content_filter"),
        (generation("", finish_reason="context"), "context"),
        (generation("", finish_reason="error"), "engine_error"),
    ],
)
def test_engine_failures_are_ends_of_their_own(error: Any, end: str) -> None:
    episode, _ = run(["SQL: select 1", error])
    assert (episode.end, episode.turns) == (end, 1)
    assert episode.error


@pytest.mark.parametrize(("where", "turns"), [("reset", 0), ("step", 0)])
def test_a_broken_environment_is_no_failure_of_the_agent(where: str, turns: int) -> None:
    episode, _ = run(["SQL: select 1"], Counting(fail=where))
    assert (episode.end, episode.turns) == ("env_error", turns)
    assert "broke" in (episode.error or "") or "no database" in (episode.error or "")


def test_an_environment_that_will_not_close_costs_nothing() -> None:
    assert run(["FINAL_SQL: select 1"], Counting(fail="close"))[0].end == "answered"


def test_a_bug_and_a_cancellation_raise_and_still_close() -> None:
    env = Counting()
    with pytest.raises(ZeroDivisionError):
        run([ZeroDivisionError()], env)
    assert env.closed == 1


def test_done_ends_an_episode_of_an_environment() -> None:
    env = Counting(done_after=2)
    dialect = Dialect(act="ACTION", final=None, abstain=None)
    episode, engine = run(["ACTION: go"], env, dialect=dialect)
    assert (episode.end, episode.turns, episode.success) == ("answered", 2, True)
    assert engine.requests[1].messages[-1].content == "OBSERVATION: 1 rows"


def test_a_monitor_may_stop_or_refuse() -> None:
    seen = []

    def after_one(episode: episodes.Episode) -> Any:
        seen.append(episode.turns)
        return "stopped" if episode.turns == 1 else None

    episode, engine = run(["SQL: select 1"], on_turn=after_one)
    assert (episode.end, episode.turns, seen, len(engine.requests)) == ("stopped", 1, [0, 1], 1)

    async def never(episode: episodes.Episode) -> Any:
        return "refused"

    episode, engine = run(["SQL: select 1"], on_turn=never)
    assert (episode.end, episode.turns, engine.requests) == ("refused", 0, [])


def test_a_monitor_may_stop_before_the_environment_answers() -> None:
    seen, env = [], Counting()

    def second(episode: episodes.Episode) -> Any:
        seen.append((episode.turns, episode.steps[-1].observation))
        return "stopped" if episode.turns == 2 else None

    episode, engine = run(["SQL: select 1", "FINAL_SQL: select 2"], env, on_action=second)
    assert (episode.end, episode.turns, len(engine.requests)) == ("stopped", 2, 2)
    assert seen == [(1, ""), (2, "")]
    assert len(env.seen) == 1, "the second action never reached the environment"
    first, last = episode.steps
    assert (first.observation, first.status) == ("1 rows", "ok")
    assert (last.kind, last.action, last.observation, last.status) == (
        "final",
        "select 2",
        "",
        "none",
    )
    assert episode.action is episode.answer is None
    unwatched, _ = run(["SQL: select 1", "FINAL_SQL: select 2"])
    watched, _ = run(["SQL: select 1", "FINAL_SQL: select 2"], on_action=lambda e: None)
    times = {"seconds": 0.0, "started_at": 0.0}
    bare = [replace(s, env_seconds=None) for s in unwatched.steps]
    assert replace(unwatched, **times, steps=bare) == replace(
        watched, **times, steps=[replace(s, env_seconds=None) for s in watched.steps]
    )


def test_turns_keep_exact_ids_as_what_they_add(encoder: ChatEncoder) -> None:
    script = ["SQL: select 1", "hm", "FINAL_SQL: select 2"]
    episode, engine = run(script, encoder=encoder, system_prompt="be good")
    assert episode.prefix_property is True
    assert [s.prompt_is_full for s in episode.steps] == [True, False, False]
    whole: list[int] = []
    for turn, request in zip(episode.steps, engine.requests, strict=True):
        whole += turn.prompt_ids or []
        assert tuple(whole) == request.prompt_ids
        assert turn.prompt_tokens == len(whole)
        whole += turn.generated_ids or []
    assert len(episode.steps[0].top_logprobs or []) == 5 * episode.steps[0].generated_tokens


def test_a_broken_prefix_is_kept_in_full(tmp_path: Path) -> None:
    encoder = ChatEncoder.from_folder(write_tokenizer(tmp_path, FORGETFUL))
    episode, engine = run(["SQL: select 1", "FINAL_SQL: select 2"], encoder=encoder)
    assert episode.prefix_property is False
    assert all(s.prompt_is_full for s in episode.steps)
    assert tuple(episode.steps[1].prompt_ids or ()) == engine.requests[1].prompt_ids


def test_thinking_that_a_template_leaves_out_breaks_the_prefix_from_there(tmp_path: Path) -> None:
    encoder = ChatEncoder.from_folder(write_tokenizer(tmp_path, QWEN3))
    thought = "<think>\nTHOUGHT: deep\n</think>\n\nSQL: select 2"
    said = ["SQL: select 1", thought, "FINAL_SQL: select 3"]
    episode, engine = run(said, encoder=encoder)
    assert (episode.end, episode.prefix_property) == ("answered", False)
    assert [s.prompt_is_full for s in episode.steps] == [True, False, True]
    assert "deep" in episode.steps[1].text, "what the model wrote is kept"
    last = tuple(episode.steps[2].prompt_ids or ())
    assert last == engine.requests[2].prompt_ids
    assert "deep" not in encoder.decode(last), "and is not shown to it again"
    assert "SQL: select 2" in encoder.decode(last)


def test_stop_and_a_user_error_record_no_episode_but_close_the_world() -> None:
    for error in (Stop("the budget is spent"), UserError("the key was refused", "export it")):
        env = Counting()
        with pytest.raises(type(error)):
            run(["SQL: select 1", error], env)
        assert (env.opened, env.closed) == (1, 1)


def test_what_failed_attempts_cost_is_kept() -> None:
    paid = replace(generation("SQL: select 1"), cost_usd=0.25)
    for error, end in (
        (EngineError("no", 0.5), "engine_error"),
        (ContextOverflow("no", 0.5), "context"),
        (Refusal("no", 0.5), "content_filter"),
        (replace(paid, finish_reason="content_filter", cost_usd=0.5), "content_filter"),
    ):
        episode, _ = run([paid, error])
        assert (episode.end, episode.turns, episode.cost_usd) == (end, 1, 0.75)
    assert run(["FINAL: null"])[0].cost_usd is None


def test_an_api_has_no_ids_and_no_prefix_property() -> None:
    episode, _ = run(["FINAL: null"])
    assert episode.prefix_property is None
    assert episode.steps[0].prompt_ids is None


def test_the_window_is_checked_before_the_call(encoder: ChatEncoder) -> None:
    episode, engine = run(["SQL: select 1"], encoder=encoder, window=120, max_tokens=20)
    assert episode.end == "context"
    assert 0 < episode.turns < 8
    assert len(engine.requests) == episode.turns


def test_an_episode_repeats_itself_whatever_runs_beside_it() -> None:
    def strip(e: episodes.Episode) -> Any:
        row, turns = episodes.to_rows(e)
        keep = [n for n, c in tables.EPISODES.columns.items() if c.kind != "volatile"]
        return {n: row[n] for n in keep}, [t["text"] for t in turns]

    assert strip(run(["SQL: select 1"])[0]) == strip(run(["SQL: select 1"])[0])


@dataclass
class Toy:
    """As much of a benchmark as `run_task` asks for."""

    name: str = "toy"
    dialect: Dialect = SQL_DIALECT
    max_turns: int = 2

    def system_prompt(self) -> str:
        return "be good"

    def make_env(self, task: Task) -> Counting:
        return Counting()


@pytest.mark.parametrize("instructed", [True, False])
def test_run_task_asks_the_benchmark_and_the_engine(tmp_path: Path, instructed: bool) -> None:
    folder = write_tokenizer(tmp_path, takes_instructions=instructed)
    engine = ScriptedEngine(["SQL: select 1"], ChatEncoder.from_folder(folder))
    episode = asyncio.run(run_task(engine, Toy(), TASK, agent="a", rollout=3))  # type: ignore[arg-type]
    assert (episode.episode_id, episode.end, episode.turns) == ("toy/a/q1/3", "cap", 2)
    roles = [m.role for m in engine.requests[0].messages]
    assert roles == (["system", "user"] if instructed else ["user"])
