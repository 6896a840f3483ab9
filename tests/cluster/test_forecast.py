from dataclasses import replace

import pytest

from cluster import forecast
from cluster.forecast import AgentSize, RunSize
from cluster.pilot import Mean, Pilot

PILOT = Pilot(
    episodes=4,
    failed=0,
    seconds=8.0,
    load_seconds=60.0,
    peak_mb=1000.0,
    turns=Mean(3.0, 0.5),
    prompt_tokens=Mean(1000.0, 10.0),
    generated_tokens=Mean(100.0, None),
    dollars=Mean(0.01, 0.001),
)
SIZE = AgentSize("clinic", "a", 3600, 2, PILOT)
RUN = RunSize(
    agents=2, episodes=100, turns=300, tokens=1e5, fits=12, epochs=3, resamples=2000, searches=40
)


def test_sums_carry_their_interval_and_none_where_one_episode_gives_none():
    total = SIZE.total(PILOT.prompt_tokens)
    assert total["mean"] == 3_600_000
    assert total["high"] - total["mean"] == pytest.approx(1.96 * 10 * 3600, rel=1e-4)
    assert SIZE.total(PILOT.generated_tokens)["low"] is None


def test_a_replica_loads_once_and_then_works_at_the_pilots_pace():
    assert SIZE.replica_hours == pytest.approx((60 + 3600 * 2.0) / 3600)


def test_agents_run_one_after_the_other_on_all_workers():
    one = forecast.collection([SIZE], workers=1, cpus=8)
    two = forecast.collection([SIZE, replace(SIZE, gpus=1)], workers=2, cpus=8)
    assert two.hours == pytest.approx(one.hours)
    assert (one.gpus, two.gpus) == (2, 4)
    assert two.memory_mb >= forecast.asked(2 * 1000)


def test_an_agent_of_an_api_is_one_replica():
    api = forecast.collection([replace(SIZE, gpus=0, replicas=1)], workers=4, cpus=8)
    assert api.hours == pytest.approx(SIZE.replica_hours)
    assert api.memory_mb < forecast.collection([SIZE], workers=4, cpus=8).memory_mb


def test_what_runs_on_a_gpu_has_no_rate_of_a_cpu():
    found = forecast.later("activations", RUN, forecast.known_rates(), cpus=2, gpus=1)
    assert (found.hours, found.gpus, found.basis) == (None, 1, "never measured on a GPU")


def test_rates_learned_from_a_run_predict_that_run():
    seconds = {"label": 10.0, "heads": 360.0, "report": 4.0}
    rates = {"from": "x", "stages": forecast.learn(RUN, seconds, {"heads": 900.0}, cpus=2)}
    for stage, value in seconds.items():
        assert forecast.later(stage, RUN, rates, cpus=2).hours == pytest.approx(
            value / 3600, rel=1e-3
        )
    assert forecast.later("heads", RUN, rates, cpus=4).hours == pytest.approx(0.05, rel=1e-3)
    assert forecast.later("heads", RUN, rates, cpus=2).memory_mb == forecast.asked(900)
    assert forecast.later("label", RUN, rates, cpus=2).memory_mb is None


def test_a_stage_without_a_rate_is_named_not_guessed():
    found = forecast.later("probes", RUN, {"from": "x", "stages": {}}, cpus=2)
    assert (found.hours, found.memory_mb, found.basis) == (None, None, "never measured")


def test_a_rate_is_of_one_encoder():
    rates = {"from": "x", "stages": forecast.learn(RUN, {"heads": 9.0}, {}, cpus=2)}
    other = forecast.later("heads", replace(RUN, encoder="modernbert"), rates, cpus=2)
    assert (other.hours, other.basis) == (None, "never measured for modernbert")


def test_a_rate_of_the_audit_is_of_what_it_fits_again():
    run = replace(RUN, refits="tfidf")
    rates = forecast.known_rates()
    expected = rates["stages"]["audit"]["cpu_seconds"] * run.episodes / 2 / 3600
    assert forecast.later("audit", run, rates, cpus=2).hours == pytest.approx(expected)
    other = forecast.later("audit", replace(RUN, refits="3 seeds of modernbert"), rates, cpus=2)
    assert (other.hours, other.basis) == (None, "never measured for 3 seeds of modernbert")


def test_the_shipped_rates_name_their_run_and_cover_known_stages():
    rates = forecast.known_rates()
    assert rates["from"].startswith("run ")
    assert {"label", "heads", "audit", "calibrate", "bootstrap", "report"} <= rates["stages"].keys()
    assert rates["stages"].keys() <= forecast.UNITS.keys()
