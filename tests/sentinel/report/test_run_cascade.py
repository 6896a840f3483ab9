"""The cascades' sections from made-up documents: claims to the edge, names that attack the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made_cascade
import made_run
import pyarrow as pa
import pytest

from sentinel import tables
from sentinel.report import every_monitor, probe_auc, run_cascade
from sentinel.report.load import WANTED, Run
from sentinel.report.load_cascade import Cascade, merged
from sentinel.report.render import to_html

EVIL, WORLD = made_run.HOSTILE, made_run.HOSTILE_BENCHMARK


def interval(
    statistic: str, system: str, r: int, point: float | None, low: float | None, **more: Any
):
    row = {
        "benchmark": WORLD,
        "agent": EVIL,
        "statistic": statistic,
        "system": system,
        "lam": -1.0,
        "stratum": f"paper r={r}",
        "point": point,
        "low": low,
        "high": None if low is None else 2 * point - low,
        "n": 50,
        "clusters": 20,
        "resamples": 100,
        "dropped": 0,
        "note": None if low is not None else "too few groups",
    }
    return row | more


def made(intervals: list[dict[str, Any]], cascades: bool = True) -> Run:
    paper, _ = made_cascade.hostile(EVIL)
    strict, _ = made_cascade.strict()
    rounds = [
        {"round": r, "alive": 9, "failures": 4, "auroc": 0.5 + r / 100, "auroc_n": 9, "reasons": []}
        for r in (1, 2)
    ]
    facts = {"benchmark": WORLD, "agent": EVIL, "rounds": rounds, "layer": 2}
    scorers = {cell["scorer"] for cell in paper["cells"]}
    found = Cascade(
        WORLD,
        EVIL,
        {"paper": paper, "strict": strict},
        {"paper": dict.fromkeys(scorers, facts), "strict": {"scorer": facts}},
    )
    table = tables.INTERVALS.from_rows(intervals).select(list(WANTED["intervals"]))
    config = {
        "label": "success",
        "cascade": {"main": "_hidden", "deploy": "scorer", "match": "depth", "modes": ["paper"]},
    }
    return Run(Path(), config, {}, [], {"intervals": table}, [], [found] if cascades else [])


def gains(point: float, low: float | None, statistic: str = "failure_auroc_matched_gain"):
    return [interval(statistic, f"probe - {c}", 3, point, low) for c in ("surface", "task")]


@pytest.mark.parametrize(
    ("rows", "shows"),
    [
        (gains(0.03, 0.001), True),
        (gains(0.029, 0.001), False),  # too small
        (gains(0.2, 0.0), False),  # the interval touches zero
        (gains(0.2, None), False),  # no interval
        ([gains(0.2, 0.1)[0], gains(0.01, 0.0)[1]], False),  # ahead of one of them only
    ],
)
def test_a_claim_needs_both_gains_and_both_intervals(rows, shows):
    (found,) = probe_auc.claims(made(rows))
    assert found["shows"] is shows
    assert found["matched"] is True


def test_matched_gains_come_first_and_plain_ones_say_so():
    plain = gains(0.4, 0.3, "failure_auroc_gain")
    assert probe_auc.claims(made([*plain, *gains(0.01, 0.0)]))[0]["shows"] is False
    (found,) = probe_auc.claims(made(plain))
    assert (found["shows"], found["matched"]) == (True, False)


def test_a_round_without_one_of_the_controls_is_no_claim():
    assert probe_auc.claims(made(gains(0.4, 0.3)[:1])) == []


def test_hostile_names_stay_text():
    rows = [
        interval("failure_auroc", s, r, 0.7, 0.6)
        for s in ("probe", "surface", "task", "random")
        for r in (1, 2)
    ]
    run = made([*rows, *gains(0.2, 0.1)])
    sections = [probe_auc.section(run), probe_auc.claim(run), every_monitor.section(run)]
    page = to_html([s for s in sections if s is not None], title="t")
    assert "<script>" not in page
    assert "\u202e" not in page
    assert "<!-- 9007199254740993" not in page
    assert page.count("0.700") >= 8


def test_without_cascades_there_is_no_section():
    run = made([], cascades=False)
    assert run_cascade.sections(run) == []
    assert every_monitor.section(run) is None
    assert run_cascade.tiles(run) == []


def test_documents_of_other_settings_are_not_mixed():
    one, _ = made_cascade.strict()
    two, _ = made_cascade.few()
    both = [Cascade("w", a, {"strict": d}, {}) for a, d in (("a", one), ("b", two))]
    found = merged(both, "strict")
    assert found is not None
    assert found["cells"] == one["cells"]
    assert merged(both, "paper") is None


def test_a_missing_interval_is_a_dash_with_its_reason():
    run = made([interval("failure_auroc", "probe", 1, None, None, note="undefined")])
    section = probe_auc.section(run)
    assert section is not None
    page = to_html([section], title="t")
    assert "one class" in page


def test_alive_episodes_count_by_their_own_end():
    ends = [("e1", 3, True), ("e2", 1, False), ("e3", 2, None)]
    base = made([])
    full = {
        name: tables.ALL[name].empty().select(list(WANTED[name]))
        for name in ("tasks", "labels", "episodes")
    }
    where = {"benchmark": WORLD, "agent": EVIL}

    def put(name: str, rows: list[dict[str, Any]]) -> pa.Table:
        schema = full[name].schema
        return pa.Table.from_pylist(
            [{f.name: row.get(f.name) for f in schema} for row in rows], schema=schema
        )

    filled = {
        "tasks": put("tasks", [{"benchmark": WORLD, "task_id": "t", "group": "g", "pool": "x"}]),
        "episodes": put(
            "episodes",
            [
                {**where, "episode_id": e, "task_id": "t", "end": "answered", "turns": t}
                | {"generated_tokens": 1, "prompt_tokens": 1, "engine": "x"}
                for e, t, _ in ends
            ],
        ),
        "labels": put(
            "labels",
            [
                {
                    **where,
                    "episode_id": e,
                    "label": "success",
                    "correct": y,
                    "source": "environment",
                }
                | {"version": "1"}
                for e, _, y in ends
            ],
        ),
    }
    run = Run(Path(), base.config, {}, [], filled, [], base.cascades)
    found = [
        (r["round"], r["alive"], r["successes"], r["failures"], r["unlabelled"])
        for r in run_cascade.alive_rows(run)
    ]
    assert found == [(1, 3, 1, 1, 1), (2, 2, 1, 0, 1), (3, 1, 1, 0, 0)]
