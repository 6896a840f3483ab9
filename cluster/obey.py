"""A frozen monitor in a replica's process: collection obeys it (`stop_with`).

Scores are computed in a thread of their own, one after the other, so that the event loop goes on
serving the other episodes. What is decided of an episode depends on that episode alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sentinel.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from sentinel.benchmarks.base import Benchmark, Task
    from sentinel.episodes import Episode
    from sentinel.monitor.running import Features, Hidden, Running

T = TypeVar("T")
End = Literal["stopped", "refused"] | None
Hook = Callable[["Episode"], Awaitable[End]]


@dataclass(frozen=True, slots=True)
class Orders:
    """Which monitor a collection obeys, and what of it: `lam` and `system` of Sentinel's, `target`
    of a cascade. `folder` must still hold the monitor `hash` when a replica reads it."""

    folder: str
    hash: str
    lam: str | None = None
    system: str | None = None
    target: str | None = None

    @property
    def inputs(self) -> list[str | None]:
        """What episodes depend on; the folder's place is no part of it."""
        return [self.hash, self.lam, self.system, self.target]


class Overseer:
    """The monitor of one plan, loaded; makes a `Watcher` for each of its episodes.

    Raises UserError where the folder cannot be read or holds another monitor than the plan says.
    """

    def __init__(self, orders: Orders, agent: Mapping[str, Any], benchmark: Benchmark) -> None:
        from sentinel.monitor import Monitor, load

        # Beside vLLM, which takes its share of a GPU's memory in advance, heads stay on the CPU.
        gpu = agent.get("engine") == "transformers" and agent.get("device") == "cuda"
        device = "cuda" if gpu else "cpu"
        monitor = load(orders.folder, device)
        found = monitor.facts["hash"]
        if found != orders.hash:
            raise UserError(
                f"monitor {orders.folder} was changed while a run obeys it",
                "give it back, or collect under another run name",
            )
        self._monitor, self._orders, self._benchmark = monitor, orders, benchmark
        self._features: Callable[[Task], Features] | None = None
        self._hidden: Hidden | None = None
        if isinstance(monitor, Monitor):
            if monitor.policy.selection.chosen == "hybrid":
                self._features = features_of(benchmark)
        elif monitor.reads_hidden:
            layer = int(monitor.probes.facts["layer"])
            self._hidden = HiddenStates(agent, layer, device, monitor.facts.get("dtype"))
        self._thread = ThreadPoolExecutor(1, "monitor", _single)

    def watch(self, task: Task) -> Watcher:
        """Begin an episode."""
        from sentinel.monitor import Monitor
        from sentinel.monitor.running import RunningCascade, RunningSentinel

        monitor, orders = self._monitor, self._orders
        running: Running
        if isinstance(monitor, Monitor):
            features = None if self._features is None else self._features(task)
            assert orders.lam is not None
            assert orders.system is not None
            running = RunningSentinel(monitor, task.text, orders.lam, orders.system, features)
        else:
            assert orders.target is not None
            running = RunningCascade(
                monitor, task.text, orders.target, self._benchmark.dialect, self._hidden
            )
        return Watcher(running, self._thread)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _single() -> None:
    """One OpenMP thread for this one: 150 trees on one row gain nothing from two, and wait for the
    second one at every tree where cores are busy. Torch keeps its own number."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="openmp")


class Watcher:
    """One episode: `on_turn` and `on_action` for the agent loop (None: the monitor does not decide
    at that moment), `closed` for what came out of it."""

    def __init__(self, running: Running, thread: ThreadPoolExecutor) -> None:
        self._running, self._thread = running, thread
        self.on_turn: Hook | None = self._turn if running.moment == "turn" else None
        self.on_action: Hook | None = self._action if running.moment == "action" else None

    async def _turn(self, episode: Episode) -> End:
        """`refused` before anything was generated, `stopped` after a turn, or None."""
        ends = await self._ask(self._running.turn, episode)
        return None if not ends else "stopped" if episode.steps else "refused"

    async def _action(self, episode: Episode) -> End:
        """`stopped` before the environment answers, or None."""
        return "stopped" if await self._ask(self._running.action, episode) else None

    async def closed(self, episode: Episode) -> Episode:
        """The episode with what was decided of it."""
        return replace(episode, exit=await self._ask(self._running.close, episode))

    async def _ask(self, function: Callable[[Episode], T], episode: Episode) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, episode)


def features_of(benchmark: Any) -> Callable[[Task], Features]:
    """The ten features at T of a task's episode, as the label stage measures them."""
    from cluster.label_stages import world_of
    from sentinel.features import trajectory_features

    schema, clock = world_of(benchmark)

    def of_task(task: Task) -> Features:
        def at_end(episode: Episode) -> ArrayLike:
            row: ArrayLike = trajectory_features(episode, task.text, schema, clock)[-1]
            return row

        return at_end

    return of_task


class HiddenStates:
    """The residual stream of an agent's own weights at the end of a round, from its exact ids.

    A model of its own beside the engine's, so that its hooks never meet a generation.
    """

    def __init__(
        self, agent: Mapping[str, Any], layer: int, device: str, dtype: str | None = None
    ) -> None:
        from cluster.engines.folders import model_folder
        from sentinel.activations.extract import check_layers, load_backbone

        dtype = dtype or str(agent.get("dtype") or "float32")
        self._layer = layer
        self._backbone = load_backbone(model_folder(agent), dtype, device)
        check_layers([layer], self._backbone.shape)

    def __call__(self, episode: Episode, round_: int) -> NDArray[np.float16] | None:
        """(d,) float16; None where the round has no generated token, or no finite state."""
        from sentinel.activations.extract import extract
        from sentinel.activations.positions import passes

        last = passes(episode.episode_id, episode.steps, round_)[-1:]
        if not last or last[0].rounds[-1] != round_:
            return None
        one = replace(last[0], rounds=(round_,), positions=last[0].positions[-1:])
        found = extract(self._backbone, [one], [self._layer])
        return found.vectors[0, 0] if found.defined[0, 0] else None
