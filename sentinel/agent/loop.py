"""One episode: a coroutine over an Engine and an Environment, the same for every benchmark.

The runner owns the cap: a malformed turn counts as a turn and is answered by an error observation.
Whatever goes wrong ends the episode under a name of its own (`tables.ENDS`); the turns that were
finished by then are kept, and the environment is always closed.
"""

from __future__ import annotations

import hashlib
import logging
import time as wall
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Any, Literal, Protocol

import numpy as np

from sentinel.agent.chat import extends
from sentinel.agent.prompts import malformed
from sentinel.agent.react import SQL_DIALECT, Action, Dialect, parse
from sentinel.benchmarks.base import Benchmark, Environment, Step, Task
from sentinel.engine import (
    ContextOverflow,
    Engine,
    EngineError,
    Generation,
    Message,
    Refusal,
    Request,
    TokenEncoder,
)
from sentinel.episodes import Episode, Turn, episode_id

log = logging.getLogger(__name__)

Verdict = Literal["stopped", "refused"] | None
Monitor = Callable[[Episode], "Verdict | Awaitable[Verdict]"]
"""Reads the episode so far (t = 0 included) and may end it."""
_UNSEEN = Step("")
"""What stands in a turn that a monitor ended before the environment answered."""


class Clock(Protocol):
    """What the loop reads time from: the `time` module, or a virtual clock in a test."""

    def time(self) -> float:
        """Unix time in seconds."""
        ...

    def perf_counter(self) -> float:
        """Monotonic seconds."""
        ...


async def run_episode(
    engine: Engine,
    encoder: TokenEncoder | None,
    env: Environment,
    task: Task,
    *,
    agent_name: str,
    benchmark: str,
    rollout: int = 0,
    max_turns: int = 8,
    max_tokens: int = 256,
    temperature: float = 0.0,
    seed: int = 0,
    system_prompt: str = "",
    dialect: Dialect = SQL_DIALECT,
    on_turn: Monitor | None = None,
    on_action: Monitor | None = None,
    clock: Clock = wall,
) -> Episode:
    """Run one agent on one task until it answers, abstains, meets the cap or fails.

    `engine` answers requests, `encoder` turns messages into ids for a local one (None for an API,
    which takes messages). `env` is the task's world, reset and closed here. `max_turns` caps T, the
    closing turn included; `max_tokens` caps one generation. Every episode and turn derives its own
    sampling seed from `seed`. `system_prompt` may be empty. A frozen monitor is asked through
    `on_turn` before the first turn and after each turn that goes on, and through `on_action` after
    every action (the closing one too), before the environment answers it.

    Every failure of engine or environment is an end. Only a bug, a cancellation, `engine.Stop` (the
    run must end) and UserError (no request can succeed) raise.
    """
    run = _Run(
        engine=engine,
        encoder=encoder,
        env=env,
        dialect=dialect,
        max_tokens=max_tokens,
        temperature=temperature,
        clock=clock,
        episode=Episode(
            benchmark=benchmark,
            agent=agent_name,
            episode_id=episode_id(benchmark, agent_name, task.task_id, rollout),
            task_id=task.task_id,
            group=task.group,
            rollout=rollout,
            end="cap",
            turns=0,
            engine=engine.revision,
            prefix_property=None if encoder is None else True,
            started_at=clock.time(),
        ),
        seed=seed,
    )
    if system_prompt:
        run.messages.append(Message("system", system_prompt))
    begun = clock.perf_counter()
    try:
        await _play(run, max_turns, on_turn, on_action)
    finally:
        await _close(run)
    seconds = clock.perf_counter() - begun
    return replace(run.episode, seconds=seconds, environment=getattr(env, "versions", None))


async def run_task(
    engine: Engine,
    benchmark: Benchmark,
    task: Task,
    *,
    agent: str,
    rollout: int = 0,
    max_tokens: int = 256,
    temperature: float = 0.0,
    seed: int = 0,
    system_prompt: str | None = None,
    on_turn: Monitor | None = None,
    on_action: Monitor | None = None,
) -> Episode:
    """`run_episode` with everything that the benchmark and the engine know themselves.

    A local engine offers its `encoder`. `system_prompt` replaces the benchmark's, which a model
    trained on bare conversations (`ChatEncoder.takes_instructions`) is not given.
    """
    encoder: TokenEncoder | None = getattr(engine, "encoder", None)
    if system_prompt is None:
        instructed = getattr(encoder, "takes_instructions", True)
        system_prompt = benchmark.system_prompt() if instructed else ""
    env = benchmark.make_env(task)
    watch = getattr(engine, "watch", None)
    if watch is not None:  # a policy looks at the world itself
        watch(episode_id(benchmark.name, agent, task.task_id, rollout), benchmark, task, env)
    return await run_episode(
        engine,
        encoder,
        env,
        task,
        agent_name=agent,
        benchmark=benchmark.name,
        rollout=rollout,
        max_turns=benchmark.max_turns,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        system_prompt=system_prompt,
        dialect=benchmark.dialect,
        on_turn=on_turn,
        on_action=on_action,
    )


@dataclass(slots=True)
class _Run:
    """The state of an episode in flight."""

    engine: Engine
    encoder: TokenEncoder | None
    env: Environment
    dialect: Dialect
    max_tokens: int
    temperature: float
    clock: Clock
    episode: Episode
    seed: int
    messages: list[Message] = field(default_factory=list)
    prompt: tuple[int, ...] = ()
    generated: tuple[int, ...] | None = None

    def end(self, end: str, error: str | None = None) -> None:
        """Close the episode under a name."""
        self.episode = replace(self.episode, end=end, error=error)

    def charge(self, cost: float | None) -> None:
        """Add what a reply cost, of use or not."""
        if cost is not None:
            self.episode = replace(self.episode, cost_usd=(self.episode.cost_usd or 0.0) + cost)


async def _play(
    run: _Run, max_turns: int, on_turn: Monitor | None, on_action: Monitor | None
) -> None:
    try:
        run.messages.append(Message("user", await run.env.reset()))
    except Exception as error:
        return _env_failed(run, error)
    for number in range(1, max_turns + 1):
        if (early := await _asked(on_turn, run.episode)) is not None:
            return run.end(early)
        try:
            request = _request(run, number)
            generation = await run.engine.generate(request)
        except EngineError as error:
            return _refused(run, error)
        run.charge(generation.cost_usd)
        if generation.finish_reason == "content_filter":
            return run.end("content_filter", "the content filter answered")
        if generation.finish_reason in ("context", "error"):
            kind = "context" if generation.finish_reason == "context" else "engine_error"
            return run.end(kind, f"the engine finished with {generation.finish_reason}")
        action = parse(generation.text, run.dialect, generation.finish_reason)
        if on_action is not None:
            acted = _with_turn(run, number, request, generation, action, _UNSEEN, 0.0)
            if (early := await _asked(on_action, acted)) is not None:
                run.episode = acted
                return run.end(early)
        try:
            step, seconds = await _step(run, action)
        except Exception as error:
            return _env_failed(run, error)
        episode = _with_turn(run, number, request, generation, action, step, seconds)
        _record(run, request, episode)
        if _closed(run, action, step):
            return None
        run.messages.append(_assistant(generation))
        run.messages.append(Message("user", f"{run.dialect.observation}: {step.observation}"))
    verdict = getattr(run.env, "verdict", None)
    if verdict is not None and run.episode.success is None:  # no turn ever reached the world
        run.episode = replace(run.episode, success=verdict())
    return run.end("cap")


async def _asked(monitor: Monitor | None, episode: Episode) -> Verdict:
    if monitor is None:
        return None
    verdict = monitor(episode)
    return await verdict if isawaitable(verdict) else verdict


def _request(run: _Run, number: int) -> Request:
    """The next request; raises ContextOverflow where the window is known to be too small."""
    ids = None if run.encoder is None else run.encoder.encode(run.messages)
    window = run.engine.context_window
    if ids is not None and window > 0 and len(ids) + run.max_tokens > window:
        raise ContextOverflow(
            f"turn {number}: {len(ids)} prompt tokens and {run.max_tokens} to generate exceed the "
            f"window of {window}"
        )
    name = f"{run.episode.episode_id}/{number}"
    digest = hashlib.sha256(f"{run.seed}/{name}".encode("utf-8", "surrogatepass")).digest()
    return Request(
        request_id=name,
        prompt_ids=ids,
        messages=tuple(run.messages),
        max_tokens=run.max_tokens,
        temperature=run.temperature,
        seed=int.from_bytes(digest[:4], "big") >> 1,
    )


def _refused(run: _Run, error: EngineError) -> None:
    """End an episode that the engine gave no answer to."""
    run.charge(error.cost_usd)
    if isinstance(error, ContextOverflow):
        run.end("context", str(error))
    elif isinstance(error, Refusal):
        run.end("content_filter", str(error) or "the content filter answered")
    else:
        run.end("engine_error", str(error) or type(error).__name__)


async def _step(run: _Run, action: Action) -> tuple[Step, float]:
    if action.kind == "malformed":
        problem = action.problem or "the turn cannot be read"
        rendered = f"error: malformed turn ({problem})"
        return Step(malformed(problem, run.dialect), "malformed", rendered=rendered), 0.0
    begun = run.clock.perf_counter()
    step = await run.env.step(action)
    return step, run.clock.perf_counter() - begun


def _record(run: _Run, request: Request, episode: Episode) -> None:
    """Keep the episode with its new turn, and the ids that the next prompt adds to."""
    run.episode = episode
    if request.prompt_ids is not None:
        run.prompt = request.prompt_ids
        found = episode.steps[-1].generated_ids
        run.generated = None if found is None else tuple(found)


def _with_turn(
    run: _Run,
    number: int,
    request: Request,
    generation: Generation,
    action: Action,
    step: Step,
    seconds: float,
) -> Episode:
    """The episode with one more turn."""
    full, ids = True, request.prompt_ids
    episode = run.episode
    holds = episode.prefix_property
    if ids is not None and number > 1:
        full = run.generated is None or not extends(run.prompt, run.generated, ids)
        holds = bool(holds) and not full
    turn = Turn(
        benchmark=episode.benchmark,
        agent=episode.agent,
        episode_id=episode.episode_id,
        turn=number,
        prompt_ids=None if ids is None else list(ids if full else ids[_seen(run) :]),
        prompt_is_full=full,
        generated_ids=_numbers(generation.token_ids),
        finish_reason=generation.finish_reason,
        text=generation.text,
        kind=action.kind,
        thought=action.thought,
        action=action.text,
        best_so_far=action.best_so_far,
        forgiven=list(action.forgiven),
        observation=step.observation,
        rendered=step.observation if step.rendered is None else step.rendered,
        status=step.status,
        n_rows=step.n_rows,
        n_cols=step.n_cols,
        prompt_tokens=generation.prompt_tokens,
        generated_tokens=generation.generated_tokens,
        logprobs=_numbers(generation.logprobs),
        top_ids=_numbers(generation.top_ids),
        top_logprobs=_numbers(generation.top_logprobs),
        engine_seconds=generation.seconds,
        env_seconds=step.seconds or seconds,
    )
    return replace(
        episode,
        turns=number,
        steps=[*episode.steps, turn],
        prefix_property=holds,
        prompt_tokens=episode.prompt_tokens + generation.prompt_tokens,
        generated_tokens=episode.generated_tokens + generation.generated_tokens,
        success=episode.success if step.success is None else step.success,
    )


def _seen(run: _Run) -> int:
    return len(run.prompt) + len(run.generated or ())


def _closed(run: _Run, action: Action, step: Step) -> bool:
    """Whether this turn ends the episode; names the end and keeps what was committed."""
    if action.kind == "abstain":
        run.end("abstained")
    elif action.kind == "final" or step.done:
        run.episode = replace(
            run.episode, action=action.text, answer=step.answer, answer_error=step.error
        )
        run.end("answered")
    else:
        return False
    return True


def _assistant(generation: Generation) -> Message:
    ids = _numbers(generation.token_ids)
    return Message("assistant", generation.text, None if ids is None else tuple(ids))


def _numbers(values: np.ndarray | None) -> list[Any] | None:
    return None if values is None else np.asarray(values).ravel().tolist()


def _env_failed(run: _Run, error: Exception) -> None:
    log.warning("%s: environment failed", run.episode.episode_id, exc_info=error)
    run.end("env_error", f"{type(error).__name__}: {error}")


async def _close(run: _Run) -> None:
    try:
        await run.env.close()
    except Exception:
        log.exception("%s: the environment did not close", run.episode.episode_id)
