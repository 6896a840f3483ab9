"""What a local engine is asked to go on from, checked before it is queued."""

from __future__ import annotations

from sentinel.engine import ContextOverflow, EngineError, Request, TokenEncoder


def prompt_ids(request: Request, encoder: TokenEncoder, window: int) -> tuple[int, ...]:
    """The prompt's ids: those of the request, else those of its messages.

    Raises EngineError for an empty prompt or no room for a token, ContextOverflow where prompt and
    answer exceed `window` tokens.
    """
    prompt = request.prompt_ids
    if prompt is None:
        prompt = encoder.encode(request.messages)
    if not prompt or request.max_tokens < 1:
        raise EngineError("a request needs a prompt and room for at least one token")
    if len(prompt) + request.max_tokens > window:
        raise ContextOverflow(
            f"{len(prompt)} prompt tokens and {request.max_tokens} to generate exceed the "
            f"window of {window}"
        )
    return prompt
