"""The run config: frozen, strict, flat. All faults are reported at once, with the valid names.

A run config names benchmarks, agents and monitors (files of `configs/`, paths, or inline mappings)
and has one flat section per stage. Each section hashes only what its results depend on, so that a
change of the number of workers, or one more agent, never invalidates finished work.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from jobs import config_files as files
from jobs.activations_section import ActivationsConfig
from jobs.audit_section import AuditConfig
from jobs.cascade_section import CascadeSection
from jobs.judge_section import JudgeSection, with_judge
from jobs.obey_section import ObeySection
from jobs.sections import (
    AgentConfig,
    BenchmarkConfig,
    BootstrapConfig,
    CollectConfig,
    DecideConfig,
    HeadsConfig,
    MonitorConfig,
    Name,
    PoolsConfig,
    ReportConfig,
    Section,
    SiteConfig,
    as_tuple,
)
from sentinel.errors import UserError

STAGES = (
    "collect",
    "label",
    "judge",
    "activations",
    "heads",
    "audit",
    "probes",
    "calibrate",
    "search",
    "bootstrap",
    "report",
)
METHOD_OF = {
    "activations": "cascade",
    "heads": "sentinel",
    "audit": "sentinel",
    "probes": "cascade",
    "calibrate": "sentinel",
    "search": "cascade",
}
"""The method whose monitors need a stage; the other stages belong to every run."""


class RunConfig(Section):
    """Everything a run needs, with every name resolved and every path absolute."""

    name: Name
    seed: int = 42
    on: Literal["local", "debug", "slurm"] = "local"
    site: SiteConfig = SiteConfig()
    benchmarks: Annotated[tuple[BenchmarkConfig, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1
    )
    agents: Annotated[tuple[AgentConfig, ...], BeforeValidator(as_tuple)] = Field(min_length=1)
    monitors: Annotated[tuple[MonitorConfig, ...], BeforeValidator(as_tuple)] = ()
    label: str = "typed"
    """The primary label: typed, strict-2022, strict-2024, success, or judge, the run's own (kept as
    judge:MODEL:PROMPT-HASH)."""
    stop_with: str | None = None
    """A frozen monitor of another run that collection obeys: its folder, or `RUN/monitor`."""
    obey: ObeySection = ObeySection()
    again: str | None = None
    """Why a held-out pool that another monitor has seen is evaluated once more."""
    sweep: dict[str, list[Any]] = Field(default_factory=dict)
    """Settings to vary: key path → values. Agents and benchmarks share a run instead."""
    pools: PoolsConfig = PoolsConfig()
    collect: CollectConfig = CollectConfig()
    judge: JudgeSection | None = None
    activations: ActivationsConfig = ActivationsConfig()
    heads: HeadsConfig = HeadsConfig()
    audit: AuditConfig = AuditConfig()
    decide: DecideConfig = DecideConfig()
    cascade: CascadeSection = CascadeSection()
    bootstrap: BootstrapConfig = BootstrapConfig()
    report: ReportConfig = ReportConfig()

    @model_validator(mode="before")
    @classmethod
    def _label_of_the_judge(cls, value: Any) -> Any:
        return with_judge(value)

    @field_validator("label")
    @classmethod
    def _known_label(cls, value: str) -> str:
        if value == "judge":
            raise ValueError("judge needs a judge: section that names its model")
        if value not in ("typed", "strict-2022", "strict-2024", "success") and not (
            value.startswith("judge:")
        ):
            raise ValueError("valid: typed, strict-2022, strict-2024, success, judge")
        return value

    @field_validator("sweep")
    @classmethod
    def _settings_only(cls, value: dict[str, list[Any]]) -> dict[str, list[Any]]:
        wrong = [
            k for k in value if k.split(".")[0] in ("agents", "benchmarks", "monitors", "name")
        ]
        if wrong:
            raise ValueError(f"only settings can vary, not {', '.join(wrong)}")
        return value

    @model_validator(mode="after")
    def _distinct_names(self) -> RunConfig:
        for kind in ("benchmarks", "agents", "monitors"):
            names = [item.name for item in getattr(self, kind)]
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice:
                raise ValueError(f"{kind} named twice: {', '.join(twice)}")
        return self

    @model_validator(mode="after")
    def _budget_needs_prices(self) -> RunConfig:
        unpriced = [a.name for a in self.agents if a.engine == "openai" and a.price is None]
        if self.judge is not None and self.judge.price is None:
            unpriced.append("judge")
        if self.collect.budget_usd is not None and unpriced:
            raise ValueError(f"collect.budget_usd needs the price of: {', '.join(unpriced)}")
        return self

    @classmethod
    def from_file(cls, path: Path | str, overrides: Iterable[str] = ()) -> RunConfig:
        """Read, resolve and check a run config.

        Relative paths in a file start from that file's folder, those in `overrides`
        (`key.path=value`) from the current folder. Raises UserError with every fault at once.
        """
        path = Path(path).expanduser().absolute()
        raw = files.absolute_paths(files.read_mapping(path), path.parent)
        raw.setdefault("name", path.stem)
        return cls.from_mapping(raw, beside=path.parent, overrides=overrides, where=str(path))

    @classmethod
    def from_mapping(
        cls,
        raw: Mapping[str, Any],
        *,
        beside: Path | None = None,
        overrides: Iterable[str] = (),
        where: str = "config",
    ) -> RunConfig:
        """Resolve and check a plain mapping; `beside` is the folder its names are looked up in."""
        beside = beside or Path.cwd()
        config = copy.deepcopy(dict(raw))
        pairs = files.parse_overrides(overrides)
        for parts, value in pairs:
            if len(parts) == 1:
                files.apply(config, parts, value)
        faults: list[str] = []
        for kind in ("benchmarks", "agents", "monitors"):
            if isinstance(config.get(kind), list):
                config[kind] = [_resolved(kind, v, beside, faults) for v in config[kind]]
        if isinstance(config.get("site"), str):
            config["site"] = _resolved("sites", config["site"], beside, faults)
        for parts, value in pairs:
            if len(parts) > 1:
                files.apply(config, parts, value)
        try:
            checked = cls.model_validate(config)
        except ValidationError as error:
            faults += _faults(cls, error, faults)
        if faults:
            raise UserError(f"{where}: {'; '.join(faults)}", "mend these settings and run again")
        return checked

    @classmethod
    def from_json(
        cls, text: str, where: str = "config.json", overrides: Iterable[str] = ()
    ) -> RunConfig:
        """The config as `to_json` wrote it."""
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise UserError(f"{where} is no JSON: {error}", "name the run's YAML config") from error
        if not isinstance(raw, dict):
            raise UserError(f"{where} holds no mapping", "name the run's YAML config")
        return cls.from_mapping(raw, where=where, overrides=overrides)

    def to_json(self) -> str:
        """The resolved config as canonical JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"

    @model_validator(mode="after")
    def _agents_with_work(self) -> RunConfig:
        known = [b.name for b in self.benchmarks]
        for agent in self.agents:
            unknown = sorted(set(agent.benchmarks or ()) - set(known))
            if unknown:
                raise ValueError(
                    f"agent {agent.name} is to work on {', '.join(unknown)}, which the run does "
                    f"not have (it has: {', '.join(known)})"
                )
        return self

    @property
    def pairs(self) -> tuple[tuple[BenchmarkConfig, AgentConfig], ...]:
        """Every benchmark with every agent that works on it, in their order."""
        return tuple(
            (benchmark, agent)
            for benchmark in self.benchmarks
            for agent in self.agents
            if agent.benchmarks is None or benchmark.name in agent.benchmarks
        )

    @property
    def methods(self) -> frozenset[str]:
        """Methods of the monitors that the run fits; without any named, sentinel's."""
        return frozenset(m.method for m in self.monitors) or frozenset({"sentinel"})

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of this run, in order: those that some monitor of it needs."""
        return tuple(
            stage
            for stage in STAGES
            if METHOD_OF.get(stage, "") in ("", *self.methods)
            and (stage != "activations" or self.cascade.needs_activations)
            and (stage != "judge" or self.judge is not None)
        )

    def agent(self, name: str) -> AgentConfig:
        """The agent of that name. Raises UserError with the valid names."""
        return _named(self.agents, "agent", name)

    def benchmark(self, name: str) -> BenchmarkConfig:
        """The benchmark of that name. Raises UserError with the valid names."""
        return _named(self.benchmarks, "benchmark", name)


def _named(items: Iterable[Any], kind: str, name: str) -> Any:
    items = list(items)
    for item in items:
        if item.name == name:
            return item
    raise UserError(f"no {kind} named {name!r}", files.hint(name, [i.name for i in items]))


def _resolved(kind: str, value: Any, beside: Path, faults: list[str]) -> Any:
    try:
        return files.resolve(kind, value, beside)
    except UserError as error:
        faults.append(f"{error.cause} ({error.remedy})")
        return {"name": f"unresolved-{len(faults)}"}


def _faults(model: type[BaseModel], error: ValidationError, earlier: list[str]) -> Iterator[str]:
    """One phrase per fault; a name that could not be resolved has been reported already."""
    for item in error.errors(include_url=False):
        where = ".".join(str(part) for part in item["loc"]) or "config"
        if (
            earlier
            and item["loc"]
            and item["loc"][0] in ("agents", "benchmarks", "monitors", "site")
        ):
            continue
        if item["type"] == "extra_forbidden":
            names = _valid_names(model, item["loc"][:-1])
            yield f"{where}: unknown key ({files.hint(str(item['loc'][-1]), names)})"
        elif item["type"] == "missing":
            yield f"{where}: missing"
        else:
            message = item["msg"].removeprefix("Value error, ")
            got = "" if isinstance(item["input"], dict | BaseModel) else f", not {item['input']!r}"
            yield f"{where}: {message[0].lower()}{message[1:]}{got if len(got) < 80 else ''}"


def _valid_names(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Keys that the model at this place of the config knows."""
    for part in loc:
        if isinstance(part, str) and part in model.model_fields:
            found = _model_in(model.model_fields[part].annotation)
            if found is None:
                return []
            model = found
    return sorted(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for a in get_args(annotation) if (m := _model_in(a)) is not None), None)
