"""`sentinel doctor` on an agent alone: its template's quirks, its key."""

from __future__ import annotations

from pathlib import Path

import pytest
from api_server import fault, said, serve
from tiny_tokenizers import NO_SYSTEM, QWEN3, write_tokenizer

from jobs.__main__ import main


def folder(path: Path, template: str | None) -> Path:
    write_tokenizer(path, template)
    (path / "config.json").write_text('{"eos_token_id": 3}')
    (path / "model.safetensors").write_bytes(b"weights")
    return path


def doctor(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    config = tmp_path / "a.yaml"
    config.write_text(text)
    code = main(["doctor", str(config)])
    return code, capsys.readouterr().out


def test_the_quirks_of_a_template_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = folder(tmp_path / "m", QWEN3)
    text = f"engine: transformers\nmodel: {model}\ntemplate_kwargs: {{enable_thinking: false}}\n"
    code, out = doctor(tmp_path, text, capsys)
    assert code == 0, out
    assert "a: chat template" in out
    assert "0 BOS, replies stop at <|im_end|>" in out
    assert "prompts do not extend each other: stored in full" in out
    assert "thinking is left out of earlier turns" in out
    assert "benchmark clinic" not in out
    folder(model, NO_SYSTEM)
    out = doctor(tmp_path, f"engine: transformers\nmodel: {model}\n", capsys)[1]
    assert "no system role: the system prompt opens the first user message" in out


def test_a_model_without_a_template_fails_until_it_is_given_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = folder(tmp_path / "m", None)
    code, out = doctor(tmp_path, f"engine: transformers\nmodel: {model}\n", capsys)
    assert code == 2
    assert "has no chat template" in out
    assert "chat_template_file" in out
    (tmp_path / "own.jinja").write_text(NO_SYSTEM)
    text = f"engine: transformers\nmodel: {model}\nchat_template_file: own.jinja\n"
    assert doctor(tmp_path, text, capsys)[0] == 0


def test_an_api_is_asked_whether_it_takes_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "engine: openai\nmodel: m\napi_key_env: MY_KEY\nbase_url: "
    monkeypatch.delenv("MY_KEY", raising=False)
    code, out = doctor(tmp_path, text + "http://127.0.0.1:9/v1\n", capsys)
    assert (code, "no API key in $MY_KEY" in out) == (2, True)
    monkeypatch.setenv("MY_KEY", "sk-1234567890")
    with serve([said()]) as server:
        code, out = doctor(tmp_path, text + server.url + "\n", capsys)
        assert (code, "takes it" in out) == (0, True)
    with serve([said()], fault(401)) as server:
        code, out = doctor(tmp_path, text + server.url + "\n", capsys)
        assert (code, "refused the key in $MY_KEY" in out) == (2, True)
    assert "sk-1234567890" not in out
