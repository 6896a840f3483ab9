"""What a failed attempt means: try again, ask slower, ask otherwise, or give up, and how."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from cluster.engines.openai_limits import retry_after
from sentinel.engine import ContextOverflow, EngineError, Refusal
from sentinel.errors import UserError

Follow = Literal["no", "later", "hung", "slower", "without"]
DROPPABLE = ("logprobs", "top_logprobs", "seed")
"""Fields that a request can do without."""
TOKEN_FIELDS = ("max_completion_tokens", "max_tokens")
"""Two names of one limit; a server takes one of them."""

_CONTEXT = re.compile(
    r"context[ _]length|context window|maximum context|prompt is too long"
    r"|too many (?:input )?tokens|exceeds? the (?:available )?context|maximum model length",
    re.IGNORECASE,
)
_FILTER = re.compile(
    r"content[ _]?(?:filter|policy|management)|responsible ?ai|flagged|moderation", re.IGNORECASE
)
_NOT_TAKEN = re.compile(
    r"unsupported|not support|unrecognized|unknown|unexpected|not permitted|not allowed"
    r"|forbidden|max allowed",
    re.IGNORECASE,
)
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt without an answer: what to raise, unless another attempt follows.

    `follow` says which: none, one later, one at lower speed, one without `parameter`. `after` is
    how long the server asks to wait (s), `cost_usd` what it charged all the same.
    """

    error: Exception
    follow: Follow = "no"
    after: float | None = None
    parameter: str | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """What an error message must name, and what it must never show."""

    agent: str
    model: str
    url: str
    key_env: str | None
    key: str

    def clean(self, text: str) -> str:
        """One line, without the key, not longer than a line may be."""
        text = " ".join(text.split())
        if len(self.key) > 4:
            text = text.replace(self.key, "***")
        return text[:300]


def later(message: str, cost_usd: float | None = None) -> Failure:
    """A fault that may be gone in a moment."""
    return Failure(EngineError(message), "later", cost_usd=cost_usd)


def status_failure(
    status: int,
    headers: Mapping[str, str],
    body: Any,
    account: Account,
    sent: Collection[str],
    now: float,
) -> Failure:
    """What an HTTP error means.

    Args:
        status: 400 and above.
        headers: of the reply, names in lower case.
        body: the reply's `error` object, or whatever stood in its place.
        account: whose request it was.
        sent: names of the fields that the request held.
        now: Unix time, for a `Retry-After` that is a date.
    """
    error = body if isinstance(body, dict) else {}
    text = error.get("message")
    said = account.clean(text if isinstance(text, str) else _plain(body))
    code = str(error.get("code") or error.get("type") or "")
    clue = f"{code} {said}"
    told = f"HTTP {status}: {said or 'no reason given'}"
    wait = retry_after(headers, now)
    if status in (400, 403, 413, 422) and _FILTER.search(clue + _plain(error.get("innererror"))):
        return Failure(Refusal(told))
    if status in (400, 413, 422) and (code == "context_length_exceeded" or _CONTEXT.search(said)):
        return Failure(ContextOverflow(told))
    if status in (400, 403, 422) and (name := _not_taken(error, code, said, sent)):
        if name in (*DROPPABLE, *TOKEN_FIELDS):
            return Failure(EngineError(told), "without", parameter=name)
        return Failure(UserError(f"agent {account.agent}: {told}", f"change {name} in the config"))
    if status == 429 and code not in _NO_CREDIT:
        return Failure(EngineError(told), "slower", wait)
    if status in (401, 402, 403, 404, 429):
        return Failure(_mendable(status, said, account))
    if status >= 500 or status in (408, 409, 425):
        return Failure(EngineError(told), "later", wait)
    return Failure(EngineError(told))


def charged(failure: Failure, total: float | None, tries: int) -> Exception:
    """The exception of a failure that ends the request: what all its attempts cost, how many."""
    error = failure.error
    if not isinstance(error, EngineError):
        return error
    text = f"{error} ({tries} attempts)" if tries > 1 else str(error)
    return type(error)(text, total)


def with_cost(failure: Failure, cost: float | None) -> Failure:
    """The failure of a reply that was billed."""
    return replace(failure, cost_usd=cost)


def _mendable(status: int, said: str, account: Account) -> UserError:
    who = f"agent {account.agent}: "
    why = f" (HTTP {status}: {said})" if said else f" (HTTP {status})"
    if status in (402, 429):
        return UserError(f"{who}the account has no credit left{why}", "add credit and run again")
    if status == 404:
        return UserError(
            f"{who}no model {account.model} at {account.url}{why}",
            "mend model or base_url in the agent's config",
        )
    if account.key_env is None:
        return UserError(
            f"{who}{account.url} wants a key{why}",
            "name the variable that holds it: api_key_env in the agent's config",
        )
    return UserError(
        f"{who}{account.url} refused the key in ${account.key_env}{why}",
        f"export {account.key_env}=… with a valid key and run again",
    )


def _not_taken(error: Mapping[str, Any], code: str, said: str, sent: Collection[str]) -> str | None:
    """The field of the request that the server says it does not take."""
    if not (code.startswith(("unsupported", "unknown")) or _NOT_TAKEN.search(said)):
        return None
    if error.get("param") in sent:
        return str(error["param"])
    # The longer name first: `logprobs` is part of `top_logprobs`.
    names = sorted((n for n in sent if n not in ("model", "messages")), key=len, reverse=True)
    return next((n for n in names if re.search(rf"\b{re.escape(n)}\b", said)), None)


def _plain(body: Any) -> str:
    if body is None or isinstance(body, str):
        return body or ""
    try:
        return json.dumps(body)
    except (TypeError, ValueError):
        return str(body)
