"""The transformers engine on a random Llama: batches, parity, ends, seeds, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_tokenizers import write_llama, write_tokenizer

from sentinel.engine import ContextOverflow, EngineError, Generation, Message, Request
from sentinel.errors import UserError

torch = pytest.importorskip("torch")

from cluster.engines.transformers import TransformersEngine, make  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[TransformersEngine]:
    torch.set_num_threads(1)
    opened = TransformersEngine(folder, max_batch=8)
    yield opened
    asyncio.run(opened.close())


def requests(n: int, *, temperature: float = 0.0, seed: int = 0) -> list[Request]:
    generator = np.random.default_rng(seed)
    return [
        Request(
            str(i),
            tuple(generator.integers(4, 321, generator.integers(1, 60)).tolist()),
            (),
            max_tokens=int(generator.integers(1, 40)),
            temperature=temperature if i % 2 else 0.0,
            seed=i,
        )
        for i in range(n)
    ]


def together(engine: TransformersEngine, asked: list[Request]) -> list[Generation]:
    async def run() -> list[Generation]:
        return await asyncio.gather(*(engine.generate(r) for r in asked))

    return asyncio.run(run())


def alone(engine: TransformersEngine, asked: list[Request]) -> list[Generation]:
    async def run() -> list[Generation]:
        return [await engine.generate(r) for r in asked]

    return asyncio.run(run())


def assert_same(left: Generation, right: Generation) -> None:
    assert left.text == right.text
    assert left.finish_reason == right.finish_reason
    assert np.array_equal(left.token_ids, right.token_ids)  # type: ignore[arg-type]
    for name in ("logprobs", "top_logprobs"):
        a, b = getattr(left, name), getattr(right, name)
        assert a.shape == b.shape
        assert np.abs(a - b).max(initial=0) < 1e-4


def test_in_a_batch_as_alone(engine: TransformersEngine) -> None:
    # More requests than slots, of all lengths: rows leave and join all the time.
    asked = requests(30, temperature=0.9)
    for a, b in zip(together(engine, asked), alone(engine, asked), strict=True):
        assert_same(a, b)


def test_in_float64_the_batch_leaves_no_trace(folder: Path) -> None:
    engine = TransformersEngine(folder, "float64", max_batch=8)
    asked = requests(12)
    for a, b in zip(together(engine, asked), alone(engine, asked), strict=True):
        assert np.array_equal(a.token_ids, b.token_ids)  # type: ignore[arg-type]
        assert np.array_equal(a.logprobs, b.logprobs)  # type: ignore[arg-type]
        assert np.array_equal(a.top_logprobs, b.top_logprobs)  # type: ignore[arg-type]
    asyncio.run(engine.close())


def test_greedy_as_generate(engine: TransformersEngine) -> None:
    for request, got in zip(requests(12), together(engine, requests(12)), strict=True):
        prompt = torch.tensor([request.prompt_ids])
        with torch.inference_mode():
            out = engine.model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=request.max_tokens,
                do_sample=False,
                eos_token_id=engine.ends,
                pad_token_id=0,
            )[0, prompt.shape[1] :].tolist()
        ended = bool(out) and out[-1] in engine.ends
        assert got.finish_reason == ("stop" if ended else "length")
        assert (got.token_ids.tolist() if got.token_ids is not None else []) == out[
            : len(out) - ended
        ]


def test_log_probabilities_are_those_of_one_forward_pass(engine: TransformersEngine) -> None:
    for request in requests(6, temperature=1.5):
        got = alone(engine, [request])[0]
        assert got.token_ids is not None
        assert got.logprobs is not None
        n = len(got.token_ids)
        assert got.generated_tokens == n == len(got.logprobs)
        assert got.token_ids.dtype == np.int32
        assert got.logprobs.dtype == np.float32
        whole = torch.tensor([[*request.prompt_ids, *got.token_ids]])
        with torch.inference_mode():
            logits = engine.model(whole).logits[0, len(request.prompt_ids or ()) - 1 :][:n]
        logs = torch.log_softmax(logits.float(), -1)
        chosen = logs.gather(1, torch.tensor(got.token_ids.tolist(), dtype=torch.long)[:, None])
        assert np.abs(got.logprobs - chosen[:, 0].numpy()).max(initial=0) < 1e-4
        top = logs.topk(5, dim=-1)
        assert np.abs(got.top_logprobs - top.values.numpy()).max(initial=0) < 1e-4  # type: ignore[operator]
        assert np.array_equal(got.top_ids, top.indices.numpy())  # type: ignore[arg-type]


def test_a_seed_is_a_seed(engine: TransformersEngine) -> None:
    asked = replace(requests(1)[0], temperature=1.0, max_tokens=30)
    twice = alone(engine, [asked, asked, replace(asked, seed=5)])
    assert_same(twice[0], twice[1])
    assert twice[0].text != twice[2].text


def test_the_window(engine: TransformersEngine) -> None:
    fits = Request("a", (5,) * 250, (), max_tokens=6)
    assert alone(engine, [fits])[0].generated_tokens <= 6
    for request in (Request("b", (5,) * 250, (), 7), Request("c", (5,) * 300, (), 1)):
        with pytest.raises(ContextOverflow, match="window of 256"):
            alone(engine, [request])


def test_messages_are_encoded_and_ends_are_not_part_of_the_text(engine: TransformersEngine) -> None:
    assert 3 in engine.ends
    got = alone(engine, [Request("m", None, (Message("user", "hi"),), 20)])[0]
    assert got.prompt_tokens == len(engine.encoder.encode([Message("user", "hi")]))
    assert 3 not in (got.token_ids if got.token_ids is not None else ())
    assert "<|im_end|>" not in got.text


def test_stop_texts_cut_the_text(engine: TransformersEngine) -> None:
    asked = replace(requests(1)[0], max_tokens=30)
    text = alone(engine, [asked])[0].text
    cut = alone(engine, [replace(asked, stop=(text[3:5],))])[0]
    assert (cut.text, cut.finish_reason) == (text[: text.index(text[3:5])], "stop")


def test_a_request_without_a_prompt_is_refused(engine: TransformersEngine) -> None:
    for request in (Request("a", (), (), 5), Request("b", (5,), (), 0)):
        with pytest.raises(EngineError):
            alone(engine, [request])


def test_a_caller_that_leaves_disturbs_nobody(engine: TransformersEngine) -> None:
    async def run() -> list[Any]:
        asked = [Request(str(i), (7 + i,) * 9, (), 90) for i in range(6)]
        tasks = [asyncio.create_task(engine.generate(r)) for r in asked]
        await asyncio.sleep(0.02)
        for task in tasks[::2]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(run())
    assert all(isinstance(f, asyncio.CancelledError | Generation) for f in found)
    asked = [Request(str(i), (7 + i,) * 9, (), 90) for i in (1, 3, 5)]
    for a, b in zip(found[1::2], alone(engine, asked), strict=True):
        assert_same(a, b)


def test_a_failing_batch_fails_its_requests_and_no_more(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cluster.engines.batch import Batch

    def broken(self: Batch) -> Any:
        raise MemoryError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "step", broken)
        with pytest.raises(EngineError, match="out of memory"):
            alone(engine, [replace(requests(1)[0], max_tokens=30)])
    assert alone(engine, requests(2))[1].generated_tokens >= 0


def test_half_precision_weights_and_a_closed_engine(tmp_path: Path) -> None:
    opened = TransformersEngine(write_llama(tmp_path, half=True), name="n", context_window=64)
    assert (opened.model.dtype, opened.context_window, opened.name) == (torch.float32, 64, "n")
    assert "float32" in opened.revision

    async def run() -> Generation:
        last = asyncio.create_task(opened.generate(Request("a", (5, 6), (), 9)))
        await asyncio.sleep(0)
        await opened.close()
        return await last

    assert asyncio.run(run()).finish_reason in ("stop", "length")
    with pytest.raises(EngineError, match="closed"):
        alone(opened, [Request("a", (5, 6), (), 9)])


def test_long_runs_move_the_buffer(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.engines.batch.SPARE", 3)
    asked = requests(20, seed=4)
    for a, b in zip(together(engine, asked), alone(engine, asked), strict=True):
        assert_same(a, b)


def test_the_next_turn_reads_only_what_is_new(engine: TransformersEngine) -> None:
    assert engine.prefixes is not None
    asked = [replace(r, max_tokens=12) for r in requests(10, seed=8)]
    for _ in range(3):  # three turns of ten conversations, among strangers
        said = together(engine, [*asked, *requests(5, seed=9)])
        asked = [
            replace(r, prompt_ids=(*(r.prompt_ids or ()), *g.token_ids.tolist(), 3, 2, 9 + i % 4))
            for i, (r, g) in enumerate(zip(asked, said, strict=False))
            if g.token_ids is not None
        ]
    before = engine.prefixes.hits
    continued = together(engine, asked)
    assert engine.prefixes.hits - before == len(asked)
    kept, engine.prefixes.max_bytes = engine.prefixes.max_bytes, 0
    together(engine, requests(1))  # empties the store
    assert engine.prefixes.bytes == 0
    for a, b in zip(continued, together(engine, asked), strict=True):
        assert_same(a, b)
    engine.prefixes.max_bytes = kept


def test_prefixes_are_bounded_and_the_longest_serves() -> None:
    from cluster.engines.prefixes import Prefix, Prefixes

    def made(*ids: int) -> Prefix:
        return Prefix(ids, ((torch.zeros(1, len(ids), 4), torch.zeros(1, len(ids), 4)),))

    store = Prefixes(made(1, 2).bytes * 3)
    for prefix in (made(1, 2), made(1, 2, 3), made(9)):
        store.keep(prefix)
    assert store.take((1, 2)) is None  # nothing would be left to read
    assert store.take((7, 7, 7)) is None
    longest = store.take((1, 2, 3, 4))
    assert longest is not None
    assert longest.ids == (1, 2, 3)
    assert store.take((1, 2, 3, 4)).ids == (1, 2)  # type: ignore[union-attr]
    assert store.take((1, 2, 3, 4)) is None
    for i in range(20):
        store.keep(made(i, i))
    assert store.bytes <= store.max_bytes
    assert store.take((0, 0, 1)) is None
    assert store.take((19, 19, 1)) is not None


def test_from_an_agents_config(folder: Path) -> None:
    opened = make({"name": "a", "engine": "transformers", "model": str(folder), "device": "cpu"})
    assert opened.name == "a"
    asyncio.run(opened.close())


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is visible")
def test_a_gpu_that_nobody_can_see_is_said_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match=r"no CUDA device is visible \(CUDA_VISIBLE_DEVICES=''\)"):
        make({"name": "a", "engine": "transformers", "model": str(folder), "device": "cuda"})


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    with pytest.raises(UserError, match="no weights"):
        TransformersEngine(tmp_path)
    write_llama(tmp_path)
    with pytest.raises(UserError, match="unknown dtype"):
        TransformersEngine(tmp_path, dtype="int3")
    (tmp_path / "model.safetensors").write_bytes(b"short")
    with pytest.raises(UserError):
        TransformersEngine(tmp_path)
