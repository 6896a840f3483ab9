"""One snapshot at a time decides as the whole table does, whichever estimator delivers."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import skops.io
import small_prefix_scores
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from sentinel.agent.react import SQL_DIALECT
from sentinel.calibrate import logit, sigmoid
from sentinel.decide import DecideConfig, Policy, apply, fit, from_table
from sentinel.decide.play import EXIT_NAMES, systems_of
from sentinel.errors import UserError
from sentinel.monitor import Monitor, load, save, trees
from sentinel.tables import FEATURES

FACTS = {"benchmark": "w", "agent": "a", "fingerprints": {}, "training": {}}


def scored(features: bool, missing: bool = False) -> pa.Table:
    """Made-up scores; features tell right from wrong where the head does not."""
    table = small_prefix_scores.table(seed=3, groups=90, per_group=8)
    rng = np.random.default_rng(1)
    right = np.array([c is True for c in table["correct"].to_pylist()])
    if features:
        at = table.schema.get_field_index("p_correct")
        vague = logit(table["p_correct"].to_numpy()) / 4 + rng.normal(size=len(right))
        table = table.set_column(at, "p_correct", pa.array(sigmoid(vague)))
        for i, name in enumerate(FEATURES):
            values = 2.0 * right * (i < 2) + rng.normal(size=len(right))
            mask = rng.random(len(values)) < 0.1
            table = table.append_column(name, pa.array(values, pa.float64(), mask=mask))
    if missing:
        at = table.schema.get_field_index("p_correct")
        values = table["p_correct"].to_numpy()
        gone = pa.array(values, pa.float64(), mask=rng.random(len(values)) < 0.2)
        table = table.set_column(at, "p_correct", gone)
    return table


@pytest.fixture(scope="module", params=["head", "hybrid", "gaps"])
def frozen(request: Any, tmp_path_factory: Any) -> tuple[Path, Policy, Any]:
    table = scored(request.param == "hybrid", request.param == "gaps")
    policy = fit(table, DecideConfig.of(lambdas=[0.5, 1, 4], gate_budget="0.1"))
    assert policy.selection.chosen == ("hybrid" if request.param == "hybrid" else "head")
    folder = tmp_path_factory.mktemp("monitor") / "sentinel"
    save(folder, policy, {}, SQL_DIALECT, FACTS)
    return folder, policy, from_table(table)


def test_a_policy_read_back_decides_every_episode_as_the_table(frozen: Any) -> None:
    folder, policy, columns = frozen
    monitor = load(folder)
    assert isinstance(monitor, Monitor)
    assert monitor.policy.to_json() == policy.to_json()
    # one row at a time through 150 trees: fewer episodes
    keep = np.arange(len(columns)) % (16 if policy.model is not None else 4) == 0
    columns = columns.take(keep)
    raw = {"answerability": -logit(columns.p_answerable), "correctness": columns.score}
    counts = dict.fromkeys(EXIT_NAMES, 0)
    played = [(system, lam) for system in systems_of(policy) for lam in policy.stops]
    with threadpool_limits(1):
        for system, lam in played:
            batch = apply(policy, columns, lam, system)
            for e in range(len(columns)):
                watch = monitor.watch(lam, system)
                rows = range(columns.start[e], columns.end[e] + 1)
                for row in rows:
                    verdict = watch.read(
                        raw["answerability"][row],
                        raw["correctness"][row],
                        last=row == columns.end[e],
                        answered=bool(columns.answered[e]),
                        features=None if columns.features is None else columns.features[row],
                    )
                    if verdict.ends:
                        break
                expected = (batch.exit_time[e], EXIT_NAMES[batch.exit_by[e]], batch.delivered[e])
                assert (verdict.t, verdict.by, verdict.delivered) == expected
                counts[verdict.by] += 1
    assert all(n for by, n in counts.items() if by != "stop" or policy.model is None), counts


def test_what_cannot_be_played_is_named(frozen: Any) -> None:
    monitor = load(frozen[0])
    with pytest.raises(UserError, match=r"no stop for λ = 7.*0\.5, 1, 4"):
        monitor.watch(7)
    with pytest.raises(UserError, match="no system oracle; use one of: vanilla"):
        monitor.watch(1, "oracle")
    watch = monitor.watch(1, "vanilla")
    with pytest.raises(ValueError, match="first turn"):
        watch.read(0.0, 0.0, last=True)
    assert not watch.read(0.0, 0.0).ends
    assert watch.read(0.0, 0.0, last=True, answered=True).delivered
    with pytest.raises(ValueError, match="has ended"):
        watch.read(0.0, 0.0)


def test_a_monitor_without_heads_sees_nothing_and_stops_nothing(frozen: Any) -> None:
    folder, policy, _ = frozen
    monitor = load(folder)
    verdict = monitor.watch(4).see("QUESTION: ?")
    assert (verdict.ends, verdict.p_answerable, verdict.p_prefix) == (
        policy.stops["4"].s == "always",
        None,
        None,
    )


def archived(model: Any) -> bytes:
    return bytes(skops.io.dumps(model))


@pytest.fixture(scope="module")
def trained() -> bytes:
    policy = fit(scored(True), DecideConfig.of(lambdas=[1]))
    found = policy.archive()
    assert found is not None
    return found


def test_only_the_types_of_gradient_boosting_are_built(trained: bytes) -> None:
    model = trees.load(trained)
    assert type(model).__name__ == "HistGradientBoostingClassifier"
    foreign = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    for data in (archived(foreign), archived({"a": len}), archived([1, 2])):
        with pytest.raises(UserError, match=r"foreign content|holds a list"):
            trees.load(data)


@pytest.mark.parametrize("name", ["os.system", "sklearn.linear_model._base.LinearModel"])
def test_a_type_put_into_the_archive_is_refused(trained: bytes, name: str) -> None:
    """Even where skops itself would trust it."""
    module, _, kind = name.rpartition(".")
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(trained)) as old, zipfile.ZipFile(out, "w") as new:
        for item in old.namelist():
            content = old.read(item)
            if item == "schema.json":
                schema = json.loads(content)
                schema["content"]["content"]["extra"] = {
                    "__class__": kind,
                    "__module__": module,
                    "__loader__": "ObjectNode",
                    "__id__": 1,
                    "content": {},
                }
                content = json.dumps(schema).encode()
            new.writestr(item, content)
    with pytest.raises(UserError, match="foreign content"):
        trees.load(out.getvalue())


def test_a_cut_archive_or_one_with_a_pickle_inside_is_refused(trained: bytes) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        trees.load(trained[: len(trained) // 2])
    with pytest.raises(UserError, match="cannot be read"):
        trees.load(b"\x80\x04N.")
    out = io.BytesIO(trained)
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("x.pkl", b"\x80\x04N.")
    with pytest.raises(UserError, match=r"foreign content: x\.pkl"):
        trees.load(out.getvalue())
