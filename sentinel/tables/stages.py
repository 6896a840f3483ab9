"""Tables that the stages of a run write, up to the scores of the heads."""

from __future__ import annotations

from sentinel.tables.schema import (
    BOOL,
    EPISODE,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    STRING,
    STRINGS,
    Column,
    Table,
    exact,
    maybe,
    numeric,
    volatile,
)

FEATURES = (
    "lp_mean",
    "lp_min",
    "ent_mean",
    "ent_max",
    "empty_rate",
    "error_rate",
    "n_steps",
    "failed_refs",
    "bad_joins",
    "ungrounded_frac",
)
ENDS = (
    "answered",
    "abstained",
    "cap",
    "stopped",
    "refused",
    "context",
    "content_filter",
    "env_error",
    "engine_error",
)
OUTCOME_ENDS = ("answered", "abstained", "cap")
"""Ends that give an outcome; the others leave every metric of that agent and are counted."""

TASKS = Table(
    "tasks",
    ("benchmark", "task_id"),
    {
        "benchmark": exact(STRING, "name of the benchmark"),
        "task_id": exact(STRING, "id within the benchmark"),
        "group": exact(STRING, "question template or goal item; never in two pools or folds"),
        "pool": exact(STRING, "splits.Pool"),
        "fold": maybe(INT, "cross-fitting fold of a train task; null elsewhere"),
        "text": exact(STRING, "the question or goal"),
        "answerable": maybe(BOOL, "null where the notion does not apply"),
        "gold": maybe(STRING, "reference action (SQL), if any"),
        "meta": exact(STRING, "canonical JSON of what else the benchmark knows"),
    },
)

EPISODES = Table(
    "episodes",
    ("benchmark", "agent", "episode_id"),
    {
        **EPISODE,
        "task_id": exact(STRING, "the task"),
        "group": exact(STRING, "the task's group"),
        "rollout": exact(INT, "0-based repetition of the task"),
        "end": exact(STRING, f"one of {', '.join(ENDS)}"),
        "turns": exact(INT, "T: agent turns, the final one included"),
        "action": maybe(STRING, "the committed final action, as the model wrote it"),
        "answer": maybe(STRING, "its executed result, typed JSON; null when it raised"),
        "answer_error": maybe(STRING, "why the committed action gave no result"),
        "success": maybe(BOOL, "the environment's own verdict"),
        "error": maybe(STRING, "cause of an end without an outcome"),
        "prefix_property": maybe(BOOL, "every prompt extended the last; null for APIs"),
        "prompt_tokens": exact(INT, "summed over turns, each full prompt counted"),
        "generated_tokens": exact(INT, "summed over turns"),
        "agent_hash": exact(STRING, "hash of the agent's config and weights"),
        "engine": exact(STRING, "engine, version and model revision"),
        "environment": maybe(STRING, "packages that the world ran on; null where it is our own"),
        "cost_usd": maybe(FLOAT, "price paid; null for local engines"),
        "seconds": volatile(FLOAT, "wall seconds of the episode"),
        "started_at": volatile(FLOAT, "Unix time"),
        "worker": volatile(STRING, "the worker that ran it"),
        "host": volatile(STRING, "the node that ran it"),
        "attempt": volatile(INT, "1 for the first try"),
    },
)

TURNS = Table(
    "turns",
    ("benchmark", "agent", "episode_id", "turn"),
    {
        **EPISODE,
        "turn": exact(INT, "1…T"),
        "prompt_ids": maybe(INTS, "what the prompt adds to prompt and generation of the last turn"),
        "prompt_is_full": exact(BOOL, "prompt_ids is the whole prompt (turn 1, broken prefix)"),
        "generated_ids": maybe(INTS, "ids the engine produced, end-of-turn excluded"),
        "finish_reason": exact(STRING, "stop, length, …"),
        "text": exact(STRING, "what the model wrote"),
        "kind": exact(STRING, "act, final, abstain or malformed"),
        "thought": exact(STRING, "parsed thought"),
        "action": exact(STRING, "parsed action, raw text"),
        "best_so_far": maybe(STRING, "parsed BEST_SO_FAR"),
        "forgiven": exact(STRINGS, "what the parser forgave, by name"),
        "observation": exact(STRING, "what the agent was shown"),
        "rendered": exact(STRING, "what the heads read of the observation"),
        "status": exact(STRING, "ok, empty, error, malformed or none"),
        "n_rows": maybe(INT, "rows of the executed result"),
        "n_cols": maybe(INT, "columns of the executed result"),
        "prompt_tokens": exact(INT, "length of the full prompt"),
        "generated_tokens": exact(INT, "n"),
        "logprobs": numeric(FLOATS, "(n,) raw log-probability of each chosen token, nats"),
        "top_ids": Column(INTS, "(n·5,) ids of the five likeliest tokens", True, "ranked"),
        "top_logprobs": numeric(FLOATS, "(n·5,) their log-probabilities, descending"),
        "engine_seconds": volatile(FLOAT, "time in the engine"),
        "env_seconds": volatile(FLOAT, "time in the environment"),
    },
)

LABELS = Table(
    "labels",
    ("benchmark", "agent", "episode_id", "label"),
    {
        **EPISODE,
        "label": exact(STRING, "strict-2022, strict-2024, typed, judge:MODEL:PROMPT-HASH, success"),
        "correct": maybe(BOOL, "null where there is no verdict"),
        "source": exact(STRING, "rule that decided: match, abstained, failed-gold, …"),
        "version": exact(STRING, "version of the scorer"),
        "error": maybe(STRING, "why there is no verdict"),
    },
)

FEATURE_ROWS = Table(
    "features",
    ("benchmark", "agent", "episode_id", "t"),
    {
        **EPISODE,
        "t": exact(INT, "prefix length, 0…T"),
        **{
            name: numeric(FLOAT, "`sentinel.features`; null is missing, never neutral")
            for name in FEATURES
        },
        "tokens_so_far": exact(INT, "generated tokens of turns 1…t"),
        "seconds_so_far": volatile(FLOAT, "engine and environment seconds of turns 1…t"),
    },
)

SCORES = Table(
    "scores",
    ("benchmark", "agent", "episode_id", "t", "head"),
    {
        **EPISODE,
        "t": exact(INT, "prefix length, 0…T"),
        "head": exact(STRING, "answerability or correctness"),
        "logit": numeric(FLOAT, "float64 logit; null where the head could not be fitted"),
        "fold": maybe(INT, "the fold whose head scored it; null for the final pair"),
        "truncated": exact(BOOL, "the rendered prefix did not fit the window"),
    },
)

SHARED_SCORES = Table("shared_scores", SCORES.key, SCORES.columns)
"""Scores of the variant with one encoder for both heads; no decision reads them."""
