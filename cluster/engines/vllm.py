"""vLLM's AsyncLLM: token ids in; token ids and log-probabilities out, many requests at once.

vLLM's front end has an event loop and a thread of its own here, so the engine answers callers of
any loop and none of them waits while it loads. Its core is a process of its own; should the owner
be killed, a guard ends the core. No Ray, and vLLM itself is imported when an engine is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from cluster.engines import vllm_start
from cluster.engines.fit import check_agent, device_of
from cluster.engines.folders import chat_encoder, end_ids, identity, model_folder
from cluster.engines.generated import arrays, cut
from cluster.engines.guard import Guard
from cluster.engines.prompt import prompt_ids
from cluster.engines.vllm_start import Settings
from sentinel.agent.chat import ChatEncoder
from sentinel.engine import (
    EngineDied,
    EngineError,
    Generation,
    Request,
)
from sentinel.errors import UserError

log = logging.getLogger(__name__)
LIVENESS_SECONDS = 0.5
"""How often the core's process is looked at."""
END_SECONDS = 10.0
"""Time that the core is given to end by itself."""


class VllmEngine:
    """A causal language model in vLLM. Made by `make`; blocks until the model is loaded.

    Args:
        folder: config.json and safetensors; vLLM reads no tokenizer.
        encoder: what turns messages into ids and ids into text.
        settings: what vLLM is started with.
        name: the agent's name.

    Raises UserError when vLLM cannot load the model.
    """

    def __init__(
        self, folder: Path, encoder: ChatEncoder, settings: Settings, name: str = "vllm"
    ) -> None:
        self.name, self.encoder, self.settings = name, encoder, settings
        self.context_window = settings.window
        self.ends = end_ids(folder, encoder)
        self.progress = 0
        """Tokens made so far, also those of unfinished requests: who watches sees it hang."""
        self.cached_tokens = 0
        """Prompt tokens so far that were read from the prefix cache."""
        self._running: set[asyncio.Task[Generation]] = set()
        self._count = 0
        self._closing = self._ended = False
        self._ending = threading.Lock()
        self._cause: str | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="vllm-engine", daemon=True)
        self._thread.start()
        self._guard = Guard()
        try:
            self._llm: Any = self._load(folder)
        except BaseException:
            self._guard.release()  # first: the thread may still wait for the core
            self._stop_thread(timeout=5)
            raise
        self.revision = f"{vllm_start.version()}, {settings.dtype}, {identity(folder)}"
        self.capacity_tokens: int | None = vllm_start.capacity(self._llm)
        """Tokens that the key-value cache holds."""
        self._core = _with_descendants([p.pid for p in vllm_start.processes(self._llm)])
        for process in self._core:
            self._guard.watch(process.pid)
        asyncio.run_coroutine_threadsafe(self._watch(), self._loop)

    @property
    def core_pids(self) -> list[int]:
        """Processes of vLLM's core, alive or not: the scheduler's first, then its workers'."""
        return [p.pid for p in self._core]

    async def generate(self, request: Request) -> Generation:
        """Answer one request. Raises ContextOverflow, EngineError, or EngineDied."""
        begun = time.perf_counter()
        prompt = prompt_ids(request, self.encoder, self.context_window)
        if self._cause is not None:
            raise EngineDied(self._cause)
        if self._closing:
            raise EngineError("the engine is closed")
        work = self._generate(request, list(prompt), begun)
        # A cancelled caller cancels the task in vLLM's loop, which aborts the request.
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def close(self) -> None:
        """Finish what is in flight, end the core's processes and the thread."""
        await asyncio.to_thread(self._end)

    # -- in vLLM's loop ---------------------------------------------------------------------------

    async def _generate(self, request: Request, prompt: list[int], begun: float) -> Generation:
        task: Any = asyncio.current_task()
        if self._closing:
            raise EngineError("the engine is closed")
        self._running.add(task)
        try:
            return await self._answer(request, prompt, begun)
        except asyncio.CancelledError:
            if self._cause is not None:
                raise EngineDied(self._cause) from None
            raise
        except EngineError:
            raise
        except Exception as error:  # vLLM's own
            if "EngineDeadError" in {c.__name__ for c in type(error).__mro__}:
                self._die("vLLM's engine core reported that it is dead")
            if self._cause is not None:
                raise EngineDied(self._cause) from error
            raise EngineError(f"{type(error).__name__}: {error.__cause__ or error}") from error
        finally:
            self._running.discard(task)

    async def _answer(self, request: Request, prompt: list[int], begun: float) -> Generation:
        self._count += 1  # ids of requests must differ; an episode may be run again
        stream = self._llm.generate(
            vllm_start.prompt(prompt),
            vllm_start.sampling(request, self.ends),
            f"{request.request_id}#{self._count}",
        )
        ids: list[int] = []
        parts: list[Any] = []
        reason: str | None = None
        cached = 0
        async with contextlib.aclosing(stream):
            async for output in stream:
                new = output.outputs[0]
                cached = output.num_cached_tokens or 0
                ids += new.token_ids
                parts.append((list(new.token_ids), new.logprobs))
                self.progress += len(new.token_ids)
                reason = new.finish_reason
                if request.stop and cut(self.encoder.decode, ids, request.stop)[2]:
                    break  # closing the stream aborts the rest
        self.cached_tokens += cached
        return self._generation(request, len(prompt), ids, parts, reason, begun)

    def _generation(
        self,
        request: Request,
        prompt_tokens: int,
        ids: list[int],
        parts: Sequence[tuple[list[int], Any]],
        reason: str | None,
        begun: float,
    ) -> Generation:
        if reason not in (None, "stop", "length"):
            raise EngineError(f"vLLM finished the request with {reason}")
        found = [arrays(tokens, logprobs) for tokens, logprobs in parts if tokens]
        made = vllm_start.joined(found)
        if ids and reason == "stop" and ids[-1] in self.ends:
            ids = ids[:-1]
        text, n, stopped = cut(self.encoder.decode, ids, request.stop)
        return Generation(
            text=text,
            token_ids=np.asarray(ids[:n], np.int32),
            logprobs=made.logprobs[:n],
            top_ids=made.top_ids[:n],
            top_logprobs=made.top_logprobs[:n],
            finish_reason="stop" if stopped or reason == "stop" else "length",
            prompt_tokens=prompt_tokens,
            generated_tokens=n,
            seconds=time.perf_counter() - begun,
        )

    async def _watch(self) -> None:
        """Notice the core's death, whatever vLLM makes of it."""
        while not self._ended and self._cause is None:
            for process in vllm_start.processes(self._llm):
                if process.exitcode is not None:
                    self._die(f"vLLM's engine core ended (exit code {process.exitcode})")
            if self._llm.errored:
                self._die("vLLM's engine core reported that it is dead")
            await asyncio.sleep(LIVENESS_SECONDS)

    def _die(self, cause: str) -> None:
        if self._cause is None:
            self._cause = cause
            log.error("%s: %s", self.name, cause)
            for task in self._running - {asyncio.current_task()}:
                task.cancel()

    # -- starting and ending ----------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _load(self, folder: Path) -> Any:
        """Start vLLM in its loop; the guard hears of its processes while it loads."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(
            vllm_start.start(folder, self.settings), self._loop
        )
        while True:
            for child in multiprocessing.active_children():
                if child.name.startswith("EngineCore") and child.pid is not None:
                    self._guard.watch(child.pid)
            with contextlib.suppress(TimeoutError):
                return future.result(timeout=0.2)

    def _end(self) -> None:
        self._closing = True
        with self._ending:
            if not self._thread.is_alive():
                return
            asyncio.run_coroutine_threadsafe(self._drain(), self._loop).result()
            self._llm.shutdown(timeout=END_SECONDS)
            _, alive = psutil.wait_procs(self._core, timeout=2)
            for process in alive:
                log.warning("%s: process %d did not end by itself", self.name, process.pid)
                with contextlib.suppress(psutil.Error):
                    process.kill()
            # The shutdown left it to the loop to close the sockets; their context comes after.
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result()
            vllm_start.end_messaging(self._llm)
            self._llm = None
            self._stop_thread()
            self._guard.release()

    async def _drain(self) -> None:
        while self._running:
            await asyncio.wait(set(self._running))
        self._ended = True  # in the loop: from here on the core's end is no death
        handler = self._llm.output_handler
        if handler is not None:  # else it reports the core's orderly end as an error
            handler.cancel()
            await asyncio.wait({handler})

    def _stop_thread(self, timeout: float | None = None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self._loop.close()


def _with_descendants(pids: Sequence[int]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(pid)
            found += [root, *root.children(recursive=True)]
    return found


def make(agent: Mapping[str, Any]) -> VllmEngine:
    """The engine of an agent's config: `model`, `dtype`, `tensor_parallel`, `kv_cache_gb`, …

    Raises UserError for whatever keeps the model from running here.
    """
    device = device_of(agent, None)
    if device == "cuda":
        from cluster.devices import visible_gpus

        # Devices of other machines are not in sight; their number was checked with the places.
        spans = agent.get("distributed_executor_backend") == "ray"
        check = check_agent(agent, None if spans else visible_gpus())
    else:
        check = check_agent(agent, 0)
    if check is None:
        raise UserError(f"agent {agent.get('name')} is no vLLM agent", "set engine: vllm")
    folder = model_folder(agent)
    settings = vllm_start.settings_of(agent, check)
    name = str(agent.get("name", agent["model"]))
    return VllmEngine(folder, chat_encoder(agent, folder), settings, name)
