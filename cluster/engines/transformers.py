"""The embedded engine: a `transformers` model in this process, for CPUs and small models.

One worker thread owns the model and batches whatever is pending; `generate` only hands over a
request and waits. No Ray here: the engine also works in a test, a notebook or the monitor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError

from cluster.engines.batch import Batch, Row
from cluster.engines.folders import chat_encoder, end_ids, identity, model_folder
from cluster.engines.generated import cut
from cluster.engines.prefixes import Prefixes
from cluster.engines.prompt import prompt_ids
from sentinel.agent.chat import ChatEncoder
from sentinel.engine import EngineError, Generation, Request
from sentinel.errors import UserError

log = logging.getLogger(__name__)
DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
GATHER_SECONDS = 0.001
"""How long an idle worker waits for the requests that come together with the first one."""


@dataclass(eq=False, slots=True)
class _Job:
    request: Request
    row: Row
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Generation]
    begun: float
    cancelled: bool = False
    text: str = field(default="")


class TransformersEngine:
    """Generates with a causal language model from a folder of config.json and safetensors.

    Args:
        model_dir: the folder; weights stored as float16 are computed in `dtype`.
        dtype: float64, float32, bfloat16 or float16.
        max_batch: rows generated together.
        device: cpu, cuda, …
        seed: mixed into the seed of every sampled request.
        name: the agent's name.
        tokenizer_dir: folder of the tokenizer, where it is not the model's.
        encoder: what turns messages into ids, in place of that folder's.
        context_window: a smaller window than the model's.
        prefix_mb: memory for what finished turns have read; 0 reads every prompt from its start.

    Raises UserError when the folder is not a model that can be loaded.
    """

    def __init__(
        self,
        model_dir: Path | str,
        dtype: str = "float32",
        max_batch: int = 64,
        device: str = "cpu",
        seed: int = 0,
        name: str = "transformers",
        tokenizer_dir: Path | str | None = None,
        context_window: int | None = None,
        prefix_mb: int = 256,
        encoder: ChatEncoder | None = None,
    ) -> None:
        self.name = name
        self._seed, self._max_batch = seed, max_batch
        folder = Path(model_dir)
        self.encoder = encoder or ChatEncoder.from_folder(tokenizer_dir or folder)
        self.model = _load(folder, dtype, device)
        window = int(self.model.config.max_position_embeddings)
        self.context_window = min(window, context_window or window)
        self.revision = (
            f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, "
            f"{dtype}, {identity(folder)}"
        )
        self.ends = end_ids(folder, self.encoder)
        self.prefixes = Prefixes(prefix_mb * 2**20) if prefix_mb > 0 else None
        self.progress = 0
        """Tokens made so far, also those of unfinished requests: who watches sees it hang."""
        self._pending: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="transformers-engine", daemon=True)
        self._thread.start()

    async def generate(self, request: Request) -> Generation:
        """Answer one request. Raises ContextOverflow or EngineError."""
        prompt = prompt_ids(request, self.encoder, self.context_window)
        loop = asyncio.get_running_loop()
        seed = (self._seed % 2**63, request.seed % 2**63)
        row = Row(prompt, request.max_tokens, request.temperature, seed)
        job = _Job(request, row, loop, loop.create_future(), time.perf_counter())
        with self._wake:
            if self._closing:
                raise EngineError("the engine is closed")
            self._pending.append(job)
            self._wake.notify()
        try:
            return await job.future
        except asyncio.CancelledError:
            job.cancelled = True
            raise

    async def close(self) -> None:
        """Finish what is in flight and end the worker thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    # -- the worker thread ------------------------------------------------------------------------

    def _work(self) -> None:
        batch = Batch(self.model, self.ends, self.prefixes)
        running: dict[int, _Job] = {}
        since = 0
        while True:
            if not running and not self._wait():
                return
            try:
                new = self._admit(len(running), since)
                since = 0 if new else since + 1
                running |= {id(job.row): job for job in new}
                finished = batch.add([job.row for job in new]) if new else []
                self.progress += len(new)
                if len(running) > len(finished):
                    self.progress += len(running) - len(finished)
                    finished += batch.step()
                for row in finished:
                    self._answer(running.pop(id(row)))
                for key in self._gone(running):
                    batch.drop(running.pop(key).row)
            except Exception as error:  # the requests in hand fail; the thread goes on
                log.exception("the batch failed")
                for job in running.values():
                    _resolve(job, EngineError(f"{type(error).__name__}: {error}"))
                running, batch = {}, Batch(self.model, self.ends, self.prefixes)

    def _wait(self) -> bool:
        """Until something is pending; False when the engine is closed and nothing is."""
        with self._wake:
            while not self._pending:
                if self._closing:
                    return False
                self._wake.wait()
        time.sleep(GATHER_SECONDS)
        return True

    def _admit(self, running: int, since: int) -> list[_Job]:
        """Pending requests that may join now.

        Joining costs a forward pass of its own: a full house waits until a few can join at once.
        """
        pending, free = len(self._pending), self._max_batch - running
        if not pending or free <= 0 or (pending < min(free, running // 8) and since < 8):
            return []
        with self._wake:
            jobs = [self._pending.popleft() for _ in range(min(free, pending))]
        return [job for job in jobs if not job.cancelled]

    def _gone(self, running: dict[int, _Job]) -> list[int]:
        return [key for key, job in running.items() if job.cancelled]

    def _answer(self, job: _Job) -> None:
        row, request = job.row, job.request
        assert row.ids is not None
        text, n, stopped = cut(self.encoder.decode, row.ids.tolist(), request.stop)
        assert row.logprobs is not None and row.top_ids is not None  # noqa: PT018
        assert row.top_logprobs is not None
        _resolve(
            job,
            Generation(
                text=text,
                token_ids=row.ids[:n],
                logprobs=row.logprobs[:n],
                top_ids=row.top_ids[:n],
                top_logprobs=row.top_logprobs[:n],
                finish_reason="stop" if stopped or row.reason == "stop" else "length",
                prompt_tokens=len(row.prompt),
                generated_tokens=n,
                seconds=time.perf_counter() - job.begun,
            ),
        )


def make(agent: Mapping[str, Any]) -> TransformersEngine:
    """The engine of an agent's config: `model` (folder, `nano:NAME` or hub id), `dtype`, …"""
    model = str(agent["model"])
    folder = model_folder(agent)
    device = str(agent.get("device") or "auto")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    elif device.startswith("cuda") and not torch.cuda.is_available():
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise UserError(
            f"agent {agent.get('name', model)} wants {device} and no CUDA device is visible"
            + ("" if hidden is None else f" (CUDA_VISIBLE_DEVICES={hidden!r})"),
            "set device: cpu in the agent's config, or run where a GPU is visible",
        )
    window = agent.get("context_window")
    return TransformersEngine(
        folder,
        dtype=str(agent.get("dtype") or "float32"),
        max_batch=int(agent.get("max_batch") or 64),
        device=device,
        name=str(agent.get("name", model)),
        encoder=chat_encoder(agent, folder),
        context_window=None if window is None else int(window),
    )


def _load(folder: Path, dtype: str, device: str) -> Any:
    if dtype not in DTYPES:
        raise UserError(f"unknown dtype {dtype}", f"use one of: {', '.join(DTYPES)}")
    if not (folder / "config.json").is_file() or not list(folder.glob("*.safetensors")):
        raise UserError(
            f"agent folder {folder} has no weights (config.json and *.safetensors)",
            "copy the model there, or train one: sentinel train-nano BENCHMARK_CONFIG",
        )
    transformers.utils.logging.disable_progress_bar()  # a model loads in a worker, unwatched
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=DTYPES[dtype], attn_implementation="sdpa", local_files_only=True
        )
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise UserError(f"{folder} cannot be loaded: {error}", "copy the model again") from error
    if dtype == "float64":
        _widen_norms(model)
    return model.to(device).eval()


def _widen_norms(model: Any) -> None:
    """Compute RMS norms in the model's own width: the library rounds to float32 inside them.

    In float64 throughout, the batch that a prompt was in moves a log-probability by 1e-15, which
    its float32 record does not show.
    """
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = partial(_rms_norm, module)


def _rms_norm(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    mean_square = hidden.pow(2).mean(-1, keepdim=True)
    return module.weight * hidden * torch.rsqrt(mean_square + module.variance_epsilon)


def _resolve(job: _Job, result: Generation | Exception) -> None:
    def settle() -> None:
        if job.future.done():
            return
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)

    try:
        job.loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the caller's event loop has ended
        log.debug("nobody waits for %s any more", job.request.request_id)
