"""`sentinel doctor` for agents: what its chat template does, whether an API takes its key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sentinel.errors import UserError

if TYPE_CHECKING:
    from jobs.sections import AgentConfig

Finding = tuple[str, str, str]
"""State (`ok`, `note` or `FAIL`), what was looked at, and what was found."""


def agent_findings(agent: AgentConfig) -> Iterator[Finding]:
    """What can be known of an agent without loading its model."""
    if agent.engine == "openai":
        yield _key(agent)
    elif agent.engine not in ("custom", "policy"):
        yield from _template(agent)


def _key(agent: AgentConfig) -> Finding:
    from cluster.engines import check_agent

    try:
        check_agent(agent.model_dump(exclude_none=True))
    except UserError as error:
        return "FAIL", "key", str(error)
    return "ok", "key", "the server answers and takes it"


def _template(agent: AgentConfig) -> Iterator[Finding]:
    from cluster.engines.folders import chat_encoder, end_ids
    from sentinel.agent.template_report import inspect_template

    folder = _folder(agent)
    if folder is None:
        yield "note", "chat template", "looked at when the model is here"
        return
    try:
        encoder = chat_encoder(agent.model_dump(exclude_none=True), folder)
    except UserError as error:
        yield "FAIL", "chat template", str(error)
        return
    report = inspect_template(encoder, end_ids(folder, encoder))
    ends = ", ".join(report.ends) or "nothing"
    yield "ok", "chat template", f"{report.bos} BOS, replies stop at {ends}"
    for quirk in report.quirks():
        yield "note", "chat template", quirk


def _folder(agent: AgentConfig) -> Path | None:
    """The model's folder, if it is on this machine."""
    from huggingface_hub import try_to_load_from_cache

    from cluster.engines import weights_folder

    folder = weights_folder(agent.model)
    if folder is not None:
        return folder
    cached = try_to_load_from_cache(agent.model, "tokenizer.json", revision=agent.revision)
    return Path(cached).parent if isinstance(cached, str) else None
