"""Map functions over items on a cluster, or in a plain loop: the same functions either way."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from cluster import ray_runtime
from cluster.stages import call, check_importable
from sentinel.errors import UserError

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")
Kind = Literal["error", "user", "oom", "died", "ray"]
RETRIES = 2
"""New tries of a task whose worker process died; errors of the function itself are not retried."""


@dataclass(frozen=True, slots=True)
class ItemError:
    """An item without a result.

    `kind`: error (the function raised), user (a UserError), oom (killed for memory), died (its
    worker process died), ray (anything else that Ray reports).
    """

    kind: Kind
    cause: str
    trace: str = ""
    error: BaseException | None = None

    def __str__(self) -> str:
        return self.cause

    def reraise(self) -> None:
        """Raise the original error where there is one, a RuntimeError with its trace elsewhere."""
        if isinstance(self.error, UserError):
            raise self.error
        raise RuntimeError(f"{self.cause}\n{self.trace}".strip()) from self.error


class Advances(Protocol):
    """What `map` tells about progress."""

    def advance(self, n: int = 1, failed: int = 0) -> None:
        """`n` more items finished, `failed` of them without a result."""
        ...


class Cluster:
    """Where functions run. Open one with `open_cluster`."""

    def __init__(
        self, on: Literal["local", "debug"], cpus: int, gpus: int, session: Any = None
    ) -> None:
        self.on, self.cpus, self.gpus = on, cpus, gpus
        self.session = session

    @property
    def debug(self) -> bool:
        """A plain loop in this process, without Ray."""
        return self.on == "debug"

    def told(self) -> list[str]:
        """What a person is told about it: how to see the dashboard of a Ray that was started."""
        return [] if self.debug or self.session is None else ray_runtime.told(self.session)

    def map(
        self,
        name: str,
        fn: Callable[[I], R],
        items: Iterable[I],
        *,
        num_cpus: float = 1,
        num_gpus: float = 0,
        progress: Advances | None = None,
        max_in_flight: int | None = None,
    ) -> Iterator[tuple[I, R | ItemError]]:
        """(item, result) in order of completion; an item that failed comes with an ItemError.

        `fn` is a module-level function of an importable package (never of `jobs`); `name` names
        its tasks on the dashboard. Items are read lazily and at most `max_in_flight` (default:
        twice what the CPUs hold) are submitted at once, so memory does not grow with their number.
        """
        check_importable(fn)
        if self.debug:
            source = _map_here(fn, items)
        else:
            self._check_fits(name, num_cpus, num_gpus)
            slots = int(self.cpus / num_cpus) if num_cpus else 64
            if num_gpus:
                slots = min(slots, int(self.gpus / num_gpus))
            bound = max_in_flight or max(2 * slots, 2)
            source = _map_ray(name, fn, items, num_cpus, num_gpus, bound)
        for item, result in source:
            if progress is not None:
                progress.advance(1, failed=int(isinstance(result, ItemError)))
            yield item, result

    def _check_fits(self, name: str, num_cpus: float, num_gpus: float) -> None:
        # Ray would wait for ever.
        if num_cpus > self.cpus or num_gpus > self.gpus:
            raise UserError(
                f"stage {name} wants {num_cpus:g} CPUs and {num_gpus:g} GPUs per task, the cluster "
                f"has {self.cpus} and {self.gpus}",
                "ask for less in the config, or start with more",
            )
        nodes = _nodes()
        if not any(num_cpus <= cpus and num_gpus <= gpus for cpus, gpus in nodes):
            raise UserError(
                f"stage {name} wants {num_cpus:g} CPUs and {num_gpus:g} GPUs per task, no node "
                f"has both ({', '.join(f'{c:g} and {g:g}' for c, g in sorted(set(nodes)))})",
                "ask for less in the config, or for larger nodes",
            )


def _nodes() -> list[tuple[float, float]]:
    """CPUs and GPUs of each live node of the Ray that this process uses."""
    import ray

    alive = (node["Resources"] for node in ray.nodes() if node["Alive"])
    return [(found.get("CPU", 0), found.get("GPU", 0)) for found in alive]


@contextmanager
def open_cluster(
    on: str = "local",
    cpus: int | None = None,
    gpus: int = 0,
    address: str | None = None,
    *,
    object_store_mb: int = ray_runtime.OBJECT_STORE_MB,
    dashboard: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A cluster for the time of a `with` block: `local` starts a private Ray or joins the one that
    is named (by `address`, by the allocation that runs this process, or by Ray's job runner),
    `debug` needs none. No process is left behind.

    A joined cluster counts with the CPUs and GPUs of all its nodes. `metadata` is shown beside the
    driver in the dashboard's list of jobs. Raises UserError for another word, or when Ray does not
    start.
    """
    if on == "debug":
        yield Cluster("debug", cpus or ray_runtime.available_cpus(), gpus)
        return
    if on != "local":
        raise UserError(f"unknown --on {on}", "use one of: local, debug")
    session = ray_runtime.start_ray(
        cpus,
        gpus,
        address=address,
        object_store_mb=object_store_mb,
        dashboard=dashboard,
        metadata=metadata,
    )
    try:
        import ray

        found = ray.cluster_resources()
        yield Cluster("local", int(found.get("CPU", 0)), int(found.get("GPU", 0)), session)
    finally:
        ray_runtime.stop_ray(session)


def _map_here(fn: Callable[[I], R], items: Iterable[I]) -> Iterator[tuple[I, R | ItemError]]:
    for item in items:
        try:
            yield item, fn(item)
        except Exception as error:  # any failure of the function is its item's
            yield item, failure(error)


def _map_ray(
    name: str,
    fn: Callable[[I], R],
    items: Iterable[I],
    num_cpus: float,
    num_gpus: float,
    bound: int,
) -> Iterator[tuple[I, R | ItemError]]:
    import ray

    task = ray.remote(call).options(
        name=name, num_cpus=num_cpus, num_gpus=num_gpus, max_retries=RETRIES
    )
    threads = max(1, int(num_cpus))
    waiting: dict[Any, I] = {}
    source = iter(items)
    try:
        while True:
            while len(waiting) < bound:
                try:
                    item = next(source)
                except StopIteration:
                    break
                waiting[task.remote(fn, item, threads)] = item
            if not waiting:
                return
            ready, _ = ray.wait(list(waiting), num_returns=1)
            for ref in ready:
                item = waiting.pop(ref)
                result: R | ItemError
                try:
                    result = ray.get(ref)
                except Exception as error:  # Ray's and the function's own
                    result = failure(error)
                yield item, result
    finally:  # the caller stopped early, or Ctrl-C
        for ref in waiting:
            ray.cancel(ref, force=True)


def failure(error: BaseException) -> ItemError:
    """What an exception of a task means, in one line."""
    cause = getattr(error, "cause", None)
    original = cause if isinstance(cause, BaseException) else error
    trace = "".join(traceback.format_exception(error))
    names = {c.__name__ for c in type(error).__mro__}
    if "RayTaskError" in names or "RayError" not in names:
        if isinstance(original, UserError):
            return ItemError("user", str(original), trace, original)
        return ItemError("error", one_line(original), trace, original)
    text = str(error)
    if killed_for_memory(error):
        return ItemError("oom", "the worker was killed: the machine ran out of memory", text, error)
    if names & {"WorkerCrashedError", "ActorDiedError", "NodeDiedError", "LocalRayletDiedError"}:
        return ItemError("died", f"the worker process died ({one_line(error)})", text, error)
    return ItemError("ray", one_line(error), text, error)


def killed_for_memory(error: BaseException) -> bool:
    """Whether Ray's memory monitor killed the worker (it says so; the kernel's killer does not)."""
    text = str(error)
    return (
        type(error).__name__ == "OutOfMemoryError"
        or "memory monitor" in text.lower()
        or ("killed due to the node running low on memory" in text)
    )


def one_line(error: BaseException) -> str:
    """`Type: message`, one line of at most 400 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:400] if text else type(error).__name__
