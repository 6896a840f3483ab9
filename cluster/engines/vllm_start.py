"""What vLLM is started with and asked for: every touch of its own names but the engine's stream."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster.engines.fit import GB, GPU_SHARE, Fit
from cluster.engines.generated import Arrays
from sentinel.engine import TOP_K, Request
from sentinel.errors import UserError

STREAM_TOKENS = 16
"""Tokens between two signs of life of a request: each costs a message to the front end."""
CPU_BATCH, GPU_BATCH = 64, 256
"""Requests that vLLM computes together."""
CPU_CACHE_GB = 4.0
"""Most that a CPU's key-value cache takes when nobody says how much."""
BLOCK = 128
"""Tokens of a block of the CPU's key-value cache."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How vLLM runs a model. None of it but `dtype` and `window` changes an answer."""

    device: str
    dtype: str
    window: int
    batch: int
    parts: int = 1
    """GPUs that share the model."""
    eager: bool = True
    """No compilation and no CUDA graphs."""
    gpu_share: float = GPU_SHARE
    kv_bytes: int | None = None
    """Size of the key-value cache; None: what `gpu_share` leaves."""
    seed: int = 0
    backend: str = "mp"
    """Who starts the workers: `mp` (processes of this machine) or `ray` (actors on several)."""


def settings_of(agent: Mapping[str, Any], fit: Fit) -> Settings:
    """Settings of an agent's config, with defaults for its device."""
    cpu = fit.device == "cpu"
    batch = int(agent.get("max_batch") or (CPU_BATCH if cpu else GPU_BATCH))
    eager = agent.get("enforce_eager")
    asked = agent.get("kv_cache_gb")
    return Settings(
        device=fit.device,
        dtype=str(agent.get("dtype") or "float32"),
        window=fit.window,
        batch=batch,
        parts=1 if cpu else int(agent.get("tensor_parallel") or 1),
        backend=str(agent.get("distributed_executor_backend") or "mp"),
        eager=cpu if eager is None else bool(eager),
        gpu_share=float(agent.get("gpu_memory_utilization") or GPU_SHARE),
        kv_bytes=int(float(asked) * GB) if asked else (_cpu_cache(fit, batch) if cpu else None),
    )


def _cpu_cache(fit: Fit, batch: int) -> int:
    """Room for a full batch of windows, within bounds: a window at least, 4 GB at most."""
    token = fit.kv_gb_per_1k_tokens / 1000
    least = token * (fit.window + 3 * BLOCK)
    return int(max(least, min(token * fit.window * batch, CPU_CACHE_GB)) * GB)


async def start(folder: Path, settings: Settings) -> Any:
    """AsyncLLM of a model, on the running loop. Blocks it until the model is loaded.

    Raises UserError when vLLM refuses the model or its core does not start.
    """
    with _environment(settings):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        try:
            return AsyncLLM.from_engine_args(
                AsyncEngineArgs(
                    model=str(folder),
                    skip_tokenizer_init=True,
                    dtype=settings.dtype,
                    max_model_len=settings.window,
                    enforce_eager=settings.eager,
                    enable_prefix_caching=True,
                    tensor_parallel_size=settings.parts,
                    # Inside a Ray actor vLLM would otherwise ask Ray for workers of its own.
                    distributed_executor_backend=settings.backend if settings.parts > 1 else None,
                    gpu_memory_utilization=settings.gpu_share,
                    kv_cache_memory_bytes=settings.kv_bytes,
                    max_num_seqs=settings.batch,
                    stream_interval=STREAM_TOKENS,
                    logprobs_mode="raw_logprobs",
                    generation_config="vllm",  # sampling is ours, not the model's
                    seed=settings.seed,
                    disable_log_stats=True,
                    enable_log_requests=False,
                    use_tqdm_on_load=False,
                )
            )
        except (ValueError, RuntimeError, OSError, TimeoutError, NotImplementedError) as error:
            raise UserError(
                f"vLLM cannot run {folder}: {error}",
                "its own messages are above or in the worker's log; lower context_window, "
                "kv_cache_gb or gpu_memory_utilization where memory is short",
            ) from error


_LOCK = threading.Lock()
"""The environment belongs to the process: engines of one process start one after another."""


@contextmanager
def _environment(settings: Settings) -> Iterator[None]:
    """Variables that vLLM reads while it starts; they are put back afterwards."""
    given = os.environ
    wanted: dict[str, str | None] = {
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # never fork a process with threads
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": given.get("VLLM_LOGGING_LEVEL", "ERROR"),
    }
    if settings.device == "cpu":
        # Cores that a scheduler chose for this process, or none in particular: two engines that
        # both took the first core would share it.
        wanted["VLLM_CPU_OMP_THREADS_BIND"] = given.get("VLLM_CPU_OMP_THREADS_BIND") or "nobind"
        wanted["OMP_NUM_THREADS"] = given.get("OMP_NUM_THREADS") or "1"
        if settings.kv_bytes is not None:
            wanted["VLLM_CPU_KVCACHE_SPACE"] = None  # whole gigabytes, and it would win
    with _LOCK:
        before = {name: given.get(name) for name in wanted}
        try:
            _set(wanted)
            yield
        finally:
            _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def prompt(ids: list[int]) -> Any:
    """Token ids as vLLM takes them, without a tokenizer in between."""
    from vllm import TokensPrompt

    try:
        from vllm.inputs import tokens_input
    except ImportError:  # before 0.31
        return TokensPrompt(prompt_token_ids=ids)
    return tokens_input(ids)


def sampling(request: Request, ends: Sequence[int]) -> Any:
    """What is asked of vLLM: greedy at temperature 0, else seeded; raw log-probabilities."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=request.temperature,
        seed=request.seed % 2**63 if request.temperature > 0 else None,
        max_tokens=request.max_tokens,
        logprobs=TOP_K,
        flat_logprobs=True,
        detokenize=False,
        ignore_eos=True,  # the ends are ours, the same for every engine
        stop_token_ids=list(ends),
        output_kind=RequestOutputKind.DELTA,
    )


def joined(found: Sequence[Arrays]) -> Arrays:
    """The arrays of a request's parts, one after the other."""
    if not found:
        return Arrays(
            np.zeros(0, np.float32),
            np.zeros((0, TOP_K), np.int32),
            np.zeros((0, TOP_K), np.float32),
        )
    return Arrays(
        np.concatenate([a.logprobs for a in found]),
        np.concatenate([a.top_ids for a in found]),
        np.concatenate([a.top_logprobs for a in found]),
    )


def version() -> str:
    """vLLM and torch, as they are recorded."""
    import torch
    import vllm

    return f"vllm {vllm.__version__.split('+')[0]}, torch {torch.__version__.split('+')[0]}"


def processes(llm: Any) -> list[Any]:
    """The core's processes, as `multiprocessing` started them."""
    resources = getattr(getattr(llm, "engine_core", None), "resources", None)
    return list(getattr(getattr(resources, "engine_manager", None), "processes", ()))


def end_messaging(llm: Any) -> None:
    """End the ZeroMQ context of an engine that is shut down: vLLM leaves it, and its threads."""
    context = getattr(getattr(llm.engine_core, "resources", None), "ctx", None)
    if context is not None:
        thread = threading.Thread(target=context.term, name="zmq-term", daemon=True)
        thread.start()
        thread.join(timeout=2)  # it waits for sockets that somebody still holds


def capacity(llm: Any) -> int | None:
    """Tokens that the key-value cache holds; None where this vLLM does not say."""
    config = llm.vllm_config.cache_config
    tokens = getattr(config, "kv_cache_size_tokens", None)
    if tokens:
        return int(tokens)
    blocks, size = getattr(config, "num_gpu_blocks", None), getattr(config, "block_size", None)
    return int(blocks) * int(size) if blocks and size else None
