"""A reply of `/chat/completions` read with suspicion: every shape of it is one outcome."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cluster.engines.openai_errors import Failure, later, with_cost
from cluster.engines.openai_spend import Price
from sentinel.engine import TOP_K, Refusal

CUT = ("length", "max_tokens", "model_length")
UNLIKELY = -9998.0
"""OpenAI writes -9999.0 for a token too unlikely to be told: no log-probability."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them."""

    prompt: int
    cached: int
    generated: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A usable reply; `logprobs` (n,) and `top_logprobs` (n, 5), each whole or None."""

    text: str
    finish_reason: Literal["stop", "length"]
    usage: Usage | None
    cost_usd: float | None
    logprobs: np.ndarray | None
    top_logprobs: np.ndarray | None
    model: str


def read_reply(content: bytes, price: Price | None) -> Reply | Failure:
    """The reply in a body of status 200, or what is wrong with it; what it cost in either case."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return later(f"the reply is no JSON ({len(content)} bytes)")
    if not isinstance(data, dict):
        return later("the reply is no JSON object")
    usage = _usage(data.get("usage"))
    cost = None
    if price is not None and usage is not None:
        cost = price.cost(usage.prompt, usage.cached, usage.generated)
    read = _read(data, usage, cost)
    return with_cost(read, cost) if isinstance(read, Failure) else read


def _read(data: dict[str, Any], usage: Usage | None, cost: float | None) -> Reply | Failure:
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        said = json.dumps(data.get("error"))[:200] if data.get("error") else "choices: []"
        return later(f"the reply holds no choice ({said})")
    choice = choices[0]
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    reason, refusal = choice.get("finish_reason"), message.get("refusal")
    text = _text(message.get("content"))
    if reason == "content_filter":
        return Failure(Refusal("the content filter answered"))
    if text is None and isinstance(refusal, str) and refusal:
        return Failure(Refusal(f"the model refused: {' '.join(refusal.split())[:200]}"))
    if reason in ("error", "abort"):
        return later(f"the server gave up in the middle of the reply (finish_reason {reason})")
    if text is None:
        if reason not in CUT:
            return later(f"the reply has no content (content: null, finish_reason {reason})")
        text = ""  # every token went into thoughts that an API does not show
    logprobs, top_logprobs = _logprobs(choice.get("logprobs"))
    return Reply(
        text=text,
        finish_reason="length" if reason in CUT else "stop",
        usage=usage,
        cost_usd=cost,
        logprobs=logprobs,
        top_logprobs=top_logprobs,
        model=str(data.get("model") or ""),
    )


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    details = value.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    prompt, generated = _count(value.get("prompt_tokens")), _count(value.get("completion_tokens"))
    if prompt is None or generated is None:
        return None
    return Usage(prompt, min(_count(cached) or 0, prompt), generated)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(content: Any) -> str | None:
    """The content as text; some servers send it in parts."""
    if isinstance(content, list):
        parts = [p.get("text") for p in content if isinstance(p, dict)]
        return "".join(p for p in parts if isinstance(p, str))
    return content if isinstance(content, str) else None


def _logprobs(value: Any) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Chosen log-probabilities and the top five: each for every token, or not at all."""
    tokens = value.get("content") if isinstance(value, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(t, dict) for t in tokens):
        return None, None
    chosen = [_number(t.get("logprob")) for t in tokens]
    tops = [_top(t.get("top_logprobs")) for t in tokens]
    whole = all(x is not None and x > UNLIKELY for x in chosen)
    return (
        np.array(chosen, dtype=np.float32) if whole else None,
        None if None in tops else np.array(tops, dtype=np.float32).reshape(-1, TOP_K),
    )


def _top(entries: Any) -> list[float] | None:
    if not isinstance(entries, list):
        return None
    values = [_number(e.get("logprob")) for e in entries if isinstance(e, dict)]
    known = sorted((v for v in values if v is not None), reverse=True)
    return known[:TOP_K] if len(known) >= TOP_K else None


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        return None
    return float(value)
