"""The section of a run config for the judge behind the semantic label."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from jobs.sections import PriceConfig, Real, Section
from sentinel.judge.prompt import JudgePrompt


class JudgeSection(Section):
    """A model behind an API that speaks OpenAI's protocol; it answers one digit at temperature 0.

    It is asked about answers to answerable questions that the `strict` scorer rejects, and its
    verdicts become the label `judge:MODEL:PROMPT-HASH`.
    """

    UNHASHED: ClassVar[frozenset[str]] = frozenset(
        {"base_url", "api_key_env", "price", "concurrency", "request_timeout", "cache_dir"}
        | {"max_tokens", "tolerated"}
    )
    model: str = Field(min_length=1)
    base_url: str | None = Field(default=None, pattern=r"^https?://\S+$")
    """A server that speaks OpenAI's protocol; None: OpenAI's own."""
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_]\w*$")
    """The variable that holds the key; None: OPENAI_API_KEY, and no key where `base_url` is set."""
    price: PriceConfig | None = None
    """Counts against `collect.budget_usd`, as the agents' do."""
    strict: Literal["strict-2022", "strict-2024"] = "strict-2022"
    """The official scorer whose rejected answers go to the judge; what it accepts stays right."""
    max_rows: int = Field(default=50, ge=1)
    max_chars: int = Field(default=6000, ge=200)
    """Of each result that the judge is shown; what is left out is counted in its text."""
    max_tokens: int = Field(default=8, ge=1)
    """A reasoning model needs more than one digit's worth."""
    template_kwargs: dict[str, bool | int | float | str] | None = None
    """What the server's chat template is given besides, e.g. `enable_thinking: false`."""
    concurrency: int = Field(default=20, ge=1)
    """Requests in flight at most; halved while the server says 429."""
    request_timeout: Real = Field(default=60.0, gt=0)
    """Seconds for one reply."""
    cache_dir: str | None = None
    """Verdicts by content, shared by every run that names this folder; None: the run's own."""
    tolerated: int = Field(default=0, ge=0)
    """Questions per agent that may stay without a verdict. While there are more, a run whose label
    is the judge's stops behind this stage; the next one asks again."""

    @property
    def prompt(self) -> JudgePrompt:
        """What the judge reads."""
        template = tuple(sorted((self.template_kwargs or {}).items()))
        return JudgePrompt(self.strict, self.max_rows, self.max_chars, template)

    @property
    def label(self) -> str:
        """The name of its verdicts: `judge:MODEL:PROMPT-HASH`."""
        return self.prompt.label(self.model)

    def engine(self) -> dict[str, Any]:
        """Settings of the API engine that asks it."""
        kept = ("model", "base_url", "api_key_env", "concurrency", "request_timeout")
        found = {name: getattr(self, name) for name in (*kept, "template_kwargs")}
        found["price"] = None if self.price is None else self.price.model_dump(exclude_none=True)
        # No agent can have this name: names hold no colon.
        return {k: v for k, v in found.items() if v is not None} | {"name": f"judge:{self.model}"}


def with_judge(raw: Any) -> Any:
    """The raw run config with `label: judge` replaced by the name of the run's judge.

    Without a section it stays, for the label's own check; a faulty section has a check of its own.
    """
    if not isinstance(raw, dict) or raw.get("label") != "judge":
        return raw
    section = raw.get("judge")
    if section is None:
        return raw
    try:
        label = JudgeSection.model_validate(section).label
    except ValueError:
        label = "judge:?:?"
    return {**raw, "label": label}
