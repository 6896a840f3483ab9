"""The Engine protocol: token ids (or messages, for APIs) in; tokens and log-probabilities out.

Engines live in `cluster/engines/`; this module only says what one is, so that the agent loop, the
tests and the monitor depend on no backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np

TOP_K = 5
"""Alternatives kept per generated position (entropy is over the top five)."""

FinishReason = Literal["stop", "length", "content_filter", "context", "error"]


class EngineError(Exception):
    """The engine could not answer a request; the episode ends as `engine_error` with this text.

    `cost_usd` is what the attempts cost all the same; None where nothing is billed or known.
    """

    def __init__(self, message: str = "", cost_usd: float | None = None) -> None:
        super().__init__(message)
        self.cost_usd = cost_usd


class ContextOverflow(EngineError):
    """The prompt and its answer do not fit the model's window; the episode ends as `context`."""


class Refusal(EngineError):
    """The provider's content filter answered instead of the model."""


class EngineDied(Exception):  # not an answer to one request: every episode in flight is lost
    """The engine itself is gone (CUDA error, its process ended, no token any more).

    A collection kills its replica, starts it again, and runs the episodes in flight once more.
    """


class Stop(Exception):  # an order, not a fault
    """The run must stop cleanly: no new episode of this agent; those in flight may still finish.

    The episode whose request raised it is not recorded and runs again when the run is resumed. The
    text is one line that names the cause and what to do.
    """


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. An assistant message may carry the exact ids that the engine produced."""

    role: Literal["system", "user", "assistant"]
    content: str
    token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One generation. Local engines read `prompt_ids`, API engines read `messages`."""

    request_id: str
    prompt_ids: tuple[int, ...] | None
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Generation:
    """What an engine produced, n tokens long.

    `token_ids` (n,) int32, `logprobs` (n,) float32 raw log-probability of each chosen token, nats,
    `top_ids` (n, 5) int32 and `top_logprobs` (n, 5) float32 in descending order; each is None where
    an API does not offer it (ids never). A closing end-of-turn token is not part of any of them.
    `hidden` (layers, width) float16 is the residual stream at the last generated token, on request.
    """

    text: str
    token_ids: np.ndarray | None
    logprobs: np.ndarray | None
    top_ids: np.ndarray | None
    top_logprobs: np.ndarray | None
    finish_reason: FinishReason
    prompt_tokens: int
    generated_tokens: int
    seconds: float = 0.0
    cost_usd: float | None = None
    hidden: np.ndarray | None = field(default=None, repr=False)


@runtime_checkable
class Engine(Protocol):
    """A model that answers requests; many may be in flight at once."""

    name: str
    revision: str
    """Engine, its version and the hash of the weights: recorded with every episode."""
    context_window: int

    async def generate(self, request: Request) -> Generation:
        """Answer one request.

        Raises EngineError (or a subclass) when there is no answer, Stop when the run must end
        cleanly, UserError when no request of this agent can succeed (a refused key).
        """
        ...

    async def close(self) -> None:
        """Finish what is in flight and free the device."""
        ...


class TokenEncoder(Protocol):
    """What turns messages into the ids that a local engine reads (`sentinel.agent.chat`)."""

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of the whole conversation, closed by the generation prompt."""
        ...
