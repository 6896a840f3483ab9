"""The sections of a run config: a strict, frozen, flat model per stage and per named thing."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from sentinel.heads.config import HeadConfig as Head

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$")]
"""Names become folder names, so no slash, no space, no leading dot or underscore."""


def as_tuple(value: Any) -> Any:
    """A YAML list as the tuple that a frozen model keeps."""
    return tuple(value) if isinstance(value, list) else value


def decimal(value: Any) -> Any:
    """A bare 0.005 in YAML is a float; its shortest decimal form is what the writer meant."""
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _float(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


Real = Annotated[float, BeforeValidator(_float), Field(allow_inf_nan=False)]


class Section(BaseModel):
    """A strict, frozen group of settings."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", validate_default=True)
    UNHASHED: ClassVar[frozenset[str]] = frozenset()
    """Settings that change how fast or how much, never what a finished part holds."""

    def hash(self, *without: str) -> str:
        """Hash of the settings that results depend on, for the markers of finished parts."""
        left = {*self.UNHASHED, *without}
        return content_hash({k: v for k, v in self.model_dump().items() if k not in left})


class PriceConfig(Section):
    """What an API charges: US dollars per million tokens."""

    prompt: Real = Field(ge=0)
    cached: Real | None = Field(default=None, ge=0)
    """Prompt tokens that the server reports as cached; None: as `prompt`."""
    generated: Real = Field(ge=0)
    date: str | None = None
    """When these prices were read."""


class AgentConfig(Section):
    """An agent: a model and the engine that runs it."""

    name: Name
    engine: Literal["transformers", "vllm", "openai", "policy", "custom"]
    factory: str | None = Field(default=None, pattern=r"^[\w.]+:\w+$")
    """`module:function` that makes an engine from this mapping, for `engine: custom`."""
    model: str = Field(min_length=1)
    """`nano:NAME`, a folder, or a hub id; `oracle` or `random` for `engine: policy`."""
    benchmarks: Annotated[tuple[Name, ...] | None, BeforeValidator(as_tuple)] = Field(
        default=None, min_length=1
    )
    """Those of the run's benchmarks that it works on; None: all."""
    revision: str | None = None
    dtype: Literal["float64", "float32", "bfloat16", "float16"] = "float32"
    """float64 makes what a small model says independent of the batch it was in, to the last bit."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    max_tokens: int | None = Field(default=None, ge=1)
    """Generated tokens per turn; None takes `collect.max_tokens`."""
    context_window: int | None = Field(default=None, ge=16)
    base_url: str | None = Field(default=None, pattern=r"^https?://\S+$")
    """A server that speaks OpenAI's protocol; None: OpenAI's own."""
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_]\w*$")
    """The variable that holds the key; None: OPENAI_API_KEY, and no key where `base_url` is set."""
    price: PriceConfig | None = None
    concurrency: int | None = Field(default=None, ge=1)
    """Requests in flight at most, for an API; None: 20. Halved while the server says 429."""
    request_timeout: Real | None = Field(default=None, gt=0)
    """Seconds for one reply of an API; None: 120."""
    chat_template_file: str | None = None
    """A Jinja template in place of the model's own."""
    template_kwargs: dict[str, bool | int | float | str] | None = None
    """What the chat template is given besides the messages, e.g. `enable_thinking: false`."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs that share the model (vLLM)."""
    gpu_memory_utilization: Real | None = Field(default=None, gt=0, le=1)
    """Share of each GPU's memory that vLLM may use; None: 0.9."""
    kv_cache_gb: Real | None = Field(default=None, gt=0)
    """vLLM's key-value cache; None: the rest of the GPU's share, on a CPU at most 4 GB."""
    enforce_eager: bool | None = None
    """vLLM without compilation and CUDA graphs; None: on a CPU only."""
    max_batch: int | None = Field(default=None, ge=1)
    """Requests computed together; None: 64, on a GPU 256 (vLLM)."""


class BenchmarkConfig(Section):
    """A benchmark: its kind, its name, and settings that only its own class knows and checks."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")
    name: Name
    kind: str | None = None
    """Which benchmark class; None: the name says it."""

    def mapping(self) -> dict[str, Any]:
        """Plain settings, as `sentinel.benchmarks.registry.load` takes them."""
        return self.model_dump(exclude_none=True)


class MonitorConfig(Section):
    """A method that the run fits."""

    name: Name
    method: Literal["sentinel", "cascade"] = "sentinel"


class StageSite(Section):
    """What one stage asks Slurm for, instead of the plan's or the default numbers."""

    cpus: int | None = Field(default=None, ge=1)
    gpus: int | None = Field(default=None, ge=0)
    memory_mb: int | None = Field(default=None, ge=64)
    hours: Real | None = Field(default=None, gt=0)
    nodes: int | None = Field(default=None, ge=1)


Texts = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]


class SiteConfig(Section):
    """Where a run happens and what it may use; never part of a hash."""

    name: Name = "local"
    cpus: int | None = Field(default=None, ge=1)
    """None: the CPUs of this process's allocation; on Slurm, per node, what each stage needs."""
    gpus: int | None = Field(default=None, ge=0)
    """None: those that this process sees; on Slurm, per node, what the agents need."""
    object_store_mb: int = Field(default=256, ge=80)
    address: str | None = None
    """A Ray cluster to join; None starts one."""
    nodes: int = Field(default=1, ge=1)
    """Nodes per Slurm job, one Ray over all of them."""
    ray: bool = True
    """False: a Slurm job works in one process, as with `--on debug`; for small runs."""
    memory_mb: int | None = Field(default=None, ge=64)
    """Per node; None: from the run's plan, else by stage."""
    hours: Real = Field(default=4.0, gt=0)
    """Time limit of a Slurm job; one that reaches it is queued again and goes on."""
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    interface: str | None = None
    """The network between the nodes (ib0); None: by route."""
    dashboard: bool | None = None
    """Ray's dashboard, on its node's loopback and behind a token. None: for a Slurm job, yes."""
    modules: Texts = ()
    environment: dict[str, str] = Field(default_factory=dict)
    setup: Texts = ()
    """Shell lines at the start of every job, after modules and environment."""
    container: str | None = None
    """What runs Python in a container, for example `apptainer exec --nv image.sif`."""
    python: str | None = None
    """The interpreter on the nodes; None: this one."""
    stages: dict[str, StageSite] = Field(default_factory=dict)
    array_parallelism: int = Field(default=64, ge=1)
    """Elements of an array that run at once."""
    requeues: int = Field(default=20, ge=0)
    """How often a job that ran out of time is queued again."""
    signal_seconds: int = Field(default=90, ge=1)
    """Warning before the time limit: a job stops cleanly and is queued again."""
    options: dict[str, str] = Field(default_factory=dict)
    """Further options of sbatch, without dashes: {exclude: n7}."""


class PoolsConfig(Section):
    """How the groups of a benchmark are split, once for all agents."""

    seed: int = 42
    calibration: Real = Field(default=0.2, gt=0, lt=1)
    heldout: Real = Field(default=0.2, gt=0, lt=1)
    manifest_file: str | None = None
    """Pools as an earlier run wrote them (`manifests/` in its directory), instead of drawn ones."""

    @model_validator(mode="after")
    def _leave_a_train_pool(self) -> PoolsConfig:
        if self.calibration + self.heldout >= 1:
            raise ValueError("calibration + heldout leave nothing for the train pool")
        return self


class CollectConfig(Section):
    """Rollouts."""

    workers: int = Field(default=2, ge=1)
    concurrency: int = Field(default=32, ge=1)
    """Episodes in flight per worker."""
    rollouts: int = Field(default=1, ge=1)
    max_tokens: int = Field(default=192, ge=1)
    temperature: Real = Field(default=0.0, ge=0)
    limit: int | None = Field(default=None, ge=1)
    """At most so many questions per benchmark, chosen by seed; None: all."""
    timed_episodes: int = Field(default=0, ge=0)
    """Train questions that `run` asks each agent again one by one, for the time that stops save."""
    budget_usd: Real | None = Field(default=None, gt=0)
    """What all API agents of the run may cost together; then it stops and can be resumed."""
    tokens_in_flight: int | None = Field(default=None, ge=1)
    """Tokens that the episodes of one worker may declare at once (prompts so far, and what they may
    still generate); None takes what the engine's memory holds, where it says so."""
    wedged_seconds: Real = Field(default=300.0, gt=0)
    """A worker whose engine makes no token for so long is killed and started again."""
    parallel_agents: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    """Agents that run at once; auto: as many as have GPUs of their own, else one by one."""
    UNHASHED = frozenset(
        {
            "workers",
            "concurrency",
            "rollouts",
            "limit",
            "timed_episodes",
            "budget_usd",
            "tokens_in_flight",
            "wedged_seconds",
            "parallel_agents",
        }
    )


class HeadsConfig(Section):
    """The two text heads of each agent (`sentinel.heads.config.HeadConfig`) and their folds."""

    kind: Literal["encoder", "tfidf"] = Head.kind
    encoder: str = Head.encoder
    """`nano` (with the benchmark's own tokenizer), `nano:WORLD`, a folder, or a hub id."""
    width: int = Field(default=Head.width, ge=16)
    layers: int = Field(default=Head.layers, ge=1)
    pooling: Literal["mean", "cls", "mean-max"] = Head.pooling
    epochs: int = Field(default=Head.epochs, ge=1)
    batch_size: int = Field(default=Head.batch_size, ge=1)
    learning_rate: Real = Field(default=Head.learning_rate, gt=0)
    weight_decay: Real = Field(default=Head.weight_decay, ge=0)
    warmup: Real = Field(default=Head.warmup, ge=0, lt=1)
    clip: Real = Field(default=Head.clip, gt=0)
    dropout: Real = Field(default=Head.dropout, ge=0, lt=1)
    token_dropout: Real = Field(default=Head.token_dropout, ge=0, lt=1)
    class_weights: Literal["balanced", "none"] = Head.class_weights
    prefixes: int | None = Field(default=Head.prefixes, ge=1)
    """Snapshots drawn per episode and epoch; None: all."""
    stop_on: Literal["auroc", "loss"] = Head.stop_on
    patience: int = Field(default=Head.patience, ge=1)
    validation: Real = Field(default=Head.validation, gt=0, lt=1)
    """Share of the training groups kept for early stopping."""
    max_train_tokens: int = Field(default=Head.max_train_tokens, ge=16)
    max_score_tokens: int = Field(default=Head.max_score_tokens, ge=16)
    folds: int = Field(default=5, ge=2)
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "bfloat16"] = Head.dtype
    """What the encoder multiplies in; weights and optimiser stay in float32."""
    workers: int = Field(default=1, ge=1)
    """Processes that share each fit, through Ray Train, a GPU each (without GPUs a CPU each). The
    batches stay those of one: losses differ by rounding alone."""
    zero_stage: Annotated[int, Field(ge=0, le=3)] | None = 2
    """What DeepSpeed shards where `workers` > 1: 1 optimiser states, 2 gradients too, 3 weights
    too; None: gradients are summed without DeepSpeed."""
    micro_batch: int | None = Field(default=Head.micro_batch, ge=1)
    """Rows of a batch that one process reads at a time; None: its whole share."""
    checkpoint: bool = True
    """Keep the state of each epoch until the fit is done, to go on from after a kill."""
    shared: bool = False
    """Fit one encoder with both logits beside the pair; its scores never take the pair's place."""
    UNHASHED = frozenset({"device", "workers", "zero_stage", "micro_batch", "checkpoint", "shared"})

    @property
    def encoder_name(self) -> str:
        """The encoder as a person names it: `tfidf`, `nano 64×2`, or a folder or hub id."""
        if self.kind == "tfidf":
            return "tfidf"
        return (
            f"{self.encoder} {self.width}×{self.layers}" if self.encoder == "nano" else self.encoder
        )


class DecideConfig(Section):
    """The decision layer: thresholds, maps and the ladder."""

    lambdas: Annotated[tuple[Real, ...], BeforeValidator(as_tuple)] = Field(
        default=(1.0, 4.0, 9.0), min_length=1
    )
    gate_budget: Annotated[str, BeforeValidator(decimal)] = "0.005"
    """Share of answerable questions the gate may exit; an exact decimal."""
    selection_margin: Annotated[str, BeforeValidator(decimal)] = "0.005"
    """AUROC by which the hybrid estimator must beat the head."""
    shares: Annotated[tuple[Real, ...], BeforeValidator(as_tuple)] = (0.2, 0.33)
    """Shares of unanswerable questions to which the score is reweighted."""
    estimator_seed: int = Field(default=42, ge=0)
    """Seed of the gradient boosting behind the hybrid estimator."""
    seconds_per_step: Real | None = Field(default=None, gt=0)
    """From a serial timed rerun, where there was one."""
    drop_stopped: bool = False
    """Drop and count episodes that a monitor ended, instead of refusing the table."""

    @field_validator("lambdas")
    @classmethod
    def _lambdas(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if any(x < 0 for x in value) or len(set(value)) != len(value):
            raise ValueError("each λ must be ≥ 0 and be written once")
        return value

    @field_validator("shares")
    @classmethod
    def _shares(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 < x < 1 for x in value):
            raise ValueError("each share must lie between 0 and 1")
        return value

    @field_validator("gate_budget", "selection_margin")
    @classmethod
    def _exact(cls, value: str) -> str:
        try:
            number = Fraction(value)
        except (ValueError, ZeroDivisionError):
            raise ValueError("must be a decimal such as 0.005") from None
        if not 0 <= number < 1:
            raise ValueError("must lie in [0, 1)")
        return value


class BootstrapConfig(Section):
    """Cluster-bootstrap intervals."""

    UNHASHED: ClassVar[frozenset[str]] = frozenset({"driver"})
    resamples: int = Field(default=2000, ge=1)
    seed: int = Field(default=42, ge=0)
    driver: Literal["auto", "tune", "inline"] = "auto"
    """Where AUROCs, whose cost grows with groups², are resampled: `tune` as Ray Tune trials (agent
    × statistic × 2,000 resamples), `inline` with the agent's other statistics, `auto` by their
    size. The intervals are the same, bit for bit."""


class ReportConfig(Section):
    """The page."""

    title: str | None = None


def content_hash(value: Any) -> str:
    """Hash of a JSON-able value, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
