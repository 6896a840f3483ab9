"""What vLLM is started with, as far as it can be seen without it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

from cluster.engines.fit import GB, Fit
from cluster.engines.generated import Arrays
from cluster.engines.vllm_start import (
    Settings,
    _environment,
    capacity,
    joined,
    processes,
    settings_of,
)

NAMES = (
    "OMP_NUM_THREADS",
    "VLLM_CPU_KVCACHE_SPACE",
    "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_LOGGING_LEVEL",
    "VLLM_NO_USAGE_STATS",
    "VLLM_WORKER_MULTIPROC_METHOD",
)
CPU = Settings("cpu", "float32", 2048, 64, kv_bytes=2**28)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def made(device: str, kv: float = 0.003, window: int = 2048) -> Fit:
    return Fit(1.0, kv, 2.0, 3.0, window, 1, device, None)


def test_settings_on_a_cpu() -> None:
    nano = settings_of({}, made("cpu"))
    assert (nano.device, nano.eager, nano.parts, nano.batch) == ("cpu", True, 1, 64)
    assert nano.kv_bytes == int(0.003 / 1000 * 2048 * 64 * GB)
    # No more than 4 GB by default, but always room for one conversation.
    assert settings_of({}, made("cpu", 0.5)).kv_bytes == 4 * GB
    large = settings_of({}, made("cpu", 0.5, 32768)).kv_bytes
    assert large is not None
    assert large > 16 * GB
    assert settings_of({"kv_cache_gb": 0.5}, made("cpu")).kv_bytes == GB // 2
    assert settings_of({"tensor_parallel": 4}, made("cpu")).parts == 1


def test_settings_on_gpus() -> None:
    agent = {"dtype": "bfloat16", "tensor_parallel": 2, "max_batch": 8, "enforce_eager": True}
    assert settings_of(agent, made("cuda")) == Settings("cuda", "bfloat16", 2048, 8, 2, True)
    plain = settings_of({"gpu_memory_utilization": 0.5, "kv_cache_gb": 2}, made("cuda"))
    assert (plain.eager, plain.batch, plain.gpu_share) == (False, 256, 0.5)
    spanning = settings_of({**agent, "distributed_executor_backend": "ray"}, made("cuda"))
    assert (plain.backend, spanning.backend) == ("mp", "ray")
    assert plain.kv_bytes == 2 * GB


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "40")
    before = dict(os.environ)
    found: dict[str, str | None] = {}

    def fail() -> None:
        with _environment(CPU):
            found.update({name: os.environ.get(name) for name in NAMES})
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert found == {
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": None,  # it would win over the engine's own
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    assert dict(os.environ) == before


def test_cores_that_a_scheduler_chose_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "3")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    with _environment(CPU):
        assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "3"
        assert os.environ["OMP_NUM_THREADS"] == "2"
        assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG"


def test_on_a_gpu_threads_are_left_alone() -> None:
    with _environment(Settings("cuda", "bfloat16", 2048, 256)):
        assert "VLLM_CPU_OMP_THREADS_BIND" not in os.environ
        assert "OMP_NUM_THREADS" not in os.environ


def test_parts_of_a_request_are_joined() -> None:
    none = joined([])
    assert (none.logprobs.shape, none.top_ids.shape) == ((0,), (0, 5))
    one = Arrays(
        np.zeros(2, np.float32), np.ones((2, 5), np.int32), np.full((2, 5), -1, np.float32)
    )
    both = joined([one, one])
    assert (both.logprobs.shape, both.top_ids.shape) == ((4,), (4, 5))
    assert both.top_ids.dtype == np.int32


def test_another_vllm_may_say_less() -> None:
    assert processes(SimpleNamespace()) == []

    def engine(**cache: object) -> SimpleNamespace:
        return SimpleNamespace(vllm_config=SimpleNamespace(cache_config=SimpleNamespace(**cache)))

    assert capacity(engine()) is None
    assert capacity(engine(num_gpu_blocks=3, block_size=128)) == 384
    assert capacity(engine(kv_cache_size_tokens=500, num_gpu_blocks=3, block_size=128)) == 500
