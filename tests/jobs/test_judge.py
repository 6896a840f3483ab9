"""The judge on a server of the test: who is asked, what faults and deaths cost, what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from api_server import Answer, ApiServer, fault, said, serve
from judging import (
    BILL,
    Faults,
    config,
    content,
    digit,
    judgements,
    labelled,
    labels,
    verdict,
)

from cluster.engines.openai_spend import SpendReader
from cluster.run_dir import RunDir
from jobs import judge
from jobs.__main__ import main
from jobs.config import RunConfig
from jobs.stages import run_stages
from jobs.status import lines, status
from sentinel.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
ONLY = ("judge",)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTINEL_CACHE", str(tmp_path / "cache"))


def spent(run_dir: RunDir) -> float:
    return SpendReader(run_dir.root / "spend").total()


def contents(server: ApiServer) -> Counter[str]:
    return Counter(map(content, server.requests))


@pytest.mark.slow
def test_the_judge_is_asked_about_strict_wrong_answers_and_nothing_else(tmp_path: Path) -> None:
    with serve(verdict) as server:
        settings = config(server.url)
        run_dir = labelled(tmp_path / "r", settings)
        assert run_stages(settings, run_dir.root, ONLY) == 0
        asked = contents(server)
        assert run_stages(settings, run_dir.root, ("label", "judge")) == 0
    assert contents(server) == asked, "what is judged is not asked again"
    strict, semantic = labels(run_dir, "strict-2022"), labels(run_dir, settings.label)
    assert strict.keys() == semantic.keys()
    assert len(strict) == 120
    for episode, row in semantic.items():
        before = strict[episode]
        if before["source"] == "mismatch":
            assert row["source"] == "judge"
        else:  # correct, abstained, unanswerable: as the strict scorer says
            assert (row["correct"], row["source"]) == (before["correct"], before["source"])
    sources = Counter(row["source"] for row in semantic.values())
    assert set(sources) == {"match", "judge", "abstained", "unanswerable"}
    table = judgements(run_dir)
    assert len(table) == sources["judge"]
    assert all(r["correct"] is (digit(r["shown"]) == "1") for r in table)
    assert {r["correct"] for r in table} == {True, False}
    for row in table:
        assert semantic[row["episode_id"]]["correct"] is row["correct"]

    assert set(asked) == {r["shown"] for r in table}
    assert set(asked.values()) == {1}, "equal content of two agents is asked once"
    assert len(asked) < len(table)
    assert spent(run_dir) == pytest.approx(len(asked) * BILL)
    assert sum(r["cost_usd"] for r in table) == pytest.approx(len(asked) * BILL), "counted once"
    for request in server.requests:
        assert (request["temperature"], request["seed"]) == (0.0, 0)
        assert "SELECT" not in json.dumps(request).upper(), "it sees results, never a query"
        assert "GOLD RESULT: 1 rows x 1 cols" in content(request)


@pytest.mark.slow
def test_faults_lose_nothing_and_cost_once(tmp_path: Path) -> None:
    kinds = [
        fault(429, headers={"retry-after-ms": "50"}),
        fault(500),
        Answer(said("The same is learned, so: yes", tokens=(100, 1))),
        Answer(said(None, tokens=(100, 1))),
        Answer({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 1}}),
        Answer(b"<html>502</html>"),
        Answer(said("1"), cut=9),
        Answer(said("0"), delay=600.0),  # hangs
    ]
    billed = {2, 3, 4}
    fell: list[int] = []

    def choose(shown: str, times: int) -> Answer | None:
        if times or len(fell) >= 2 * len(kinds):
            return None
        fell.append(len(fell) % len(kinds))
        return kinds[fell[-1]]

    with serve(verdict) as calm, serve(Faults(choose)) as server:
        quiet = labelled(tmp_path / "calm", config(calm.url))
        assert run_stages(config(calm.url), quiet.root, ONLY) == 0
        settings = config(server.url, judge={"request_timeout": 3.0, "concurrency": 8})
        run_dir = labelled(tmp_path / "r", settings)
        assert run_stages(settings, run_dir.root, ONLY) == 0
    assert labels(run_dir, settings.label) == labels(quiet, settings.label)
    assert {r["error"] for r in judgements(run_dir)} == {None}
    assert set(contents(server)) == set(contents(calm))
    asked = len(contents(server))
    assert len(server.requests) == asked + len(fell), "one verdict per question"
    paid = asked + sum(kind in billed for kind in fell)
    assert spent(run_dir) == pytest.approx(paid * BILL), "each billed reply, once"
    assert sum(r["cost_usd"] for r in judgements(run_dir)) <= paid * BILL + 1e-9


@pytest.mark.slow
def test_sigkill_in_the_middle_loses_only_what_was_in_flight(tmp_path: Path) -> None:
    def slow(number: int, asked: dict[str, Any]) -> Answer:
        return Answer(verdict(number, asked).body, delay=0.1)

    with serve(verdict) as calm, serve(slow) as server:
        quiet = labelled(tmp_path / "calm", config(calm.url))
        assert run_stages(config(calm.url), quiet.root, ONLY) == 0
        settings = config(server.url)
        run_dir = labelled(tmp_path / "r", settings)
        env = dict(os.environ, PYTHONPATH=f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}")
        command = [sys.executable, "-m", "jobs", "judge", "--run-dir", str(run_dir.root)]
        child = subprocess.Popen(command, env=env, cwd=ROOT, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while len(server.requests) < 15 and time.monotonic() < deadline:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.wait()
        at_death = len(server.requests)
        assert 15 <= at_death < len(contents(calm)), "in the middle"
        assert settings.label not in set(run_dir.read("labels")["label"].to_pylist())
        assert run_stages(settings, run_dir.root, ONLY) == 0
    assert labels(run_dir, settings.label) == labels(quiet, settings.label)
    again = sum(contents(server).values()) - len(contents(server))
    assert again <= 4, "at most what was in flight is asked again"
    assert set(contents(server)) == set(contents(calm))
    costs = sum(r["cost_usd"] for r in judgements(run_dir))
    assert costs == pytest.approx(len(contents(calm)) * BILL), "each question is paid for once"
    assert spent(run_dir) == pytest.approx(costs)


@pytest.mark.slow
def test_what_cannot_be_judged_is_named_holds_the_run_and_is_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stubborn(shown: str, times: int) -> Answer | None:
        if "patient 5?" in shown:
            return Answer(said("perhaps", tokens=(100, 1)))
        return None

    def filtered(shown: str, times: int) -> Answer | None:
        return fault(400, "flagged by the content filter") if "patient 5?" in shown else None

    stages = ("label", "judge", "heads")
    with serve(Faults(stubborn)) as server:
        settings = config(server.url, ("steady",))
        run_dir = labelled(tmp_path / "r", settings)
        assert "patient 5?" in str(run_dir.read("tasks")["text"].to_pylist())
        assert run_stages(settings, run_dir.root, stages) == 3
        first = len(server.requests)
        told = capsys.readouterr()
        assert "later stages wait" in told.out
        assert "missing: judge of made/steady" in told.err
        assert "missing: heads of made/steady" in told.err
        (row,) = [r for r in judgements(run_dir) if r["correct"] is None]
        assert row["error"] == "the reply is not one digit ('perhaps')"
        assert (row["reply"], row["cost_usd"]) == (None, None)
        verdicts = labels(run_dir, settings.label)
        mine = verdicts[row["episode_id"]]
        assert (mine["correct"], mine["source"]) == (None, "unjudged")
        assert mine["error"] == row["error"]
        shown = "\n".join(lines(status(run_dir.root, settings)))
        assert "made/steady: 1 answers without a verdict: the reply is not one digit" in shown
        with pytest.raises(UserError, match=r"no verdict on 1 answers of made/steady"):
            run_stages(settings, run_dir.root, ("heads",))

        assert run_stages(settings, run_dir.root, stages) == 3
        asked = {content(r) for r in server.requests[first:]}
        assert asked == {row["shown"]}, "only this one is asked again"

    with serve(Faults(filtered)) as server:
        moved = config(server.url, ("steady",), judge={"tolerated": 1})
        assert run_stages(moved, run_dir.root, stages) == 0, "tolerated: the run goes on"
        (row,) = [r for r in judgements(run_dir) if r["correct"] is None]
        assert "flagged" in row["error"]
        assert len(server.requests) == 1
        assert run_stages(moved, run_dir.root, stages) == 0
        assert len(server.requests) == 1, "later stages hold these verdicts"


def test_a_judge_that_fails_everybody_is_not_asked_by_everybody(tmp_path: Path) -> None:
    with serve([fault(400, "this request is malformed")]) as server:
        settings = config(server.url)
        run_dir = labelled(tmp_path / "r", settings)
        assert run_stages(settings, run_dir.root, ONLY) == 3
        assert len(server.requests) <= 10 + 4
    rows = judgements(run_dir)
    assert {r["correct"] for r in rows} == {None}
    assert any("10 questions in a row failed" in r["error"] for r in rows)
    with serve(verdict) as server:
        assert run_stages(config(server.url), run_dir.root, ONLY) == 0
    assert None not in {r["correct"] for r in judgements(run_dir)}


@pytest.mark.slow
def test_two_runs_that_share_a_cache_pay_once(tmp_path: Path) -> None:
    shared = {"cache_dir": str(tmp_path / "verdicts")}
    with serve(verdict) as server:
        settings = config(server.url, judge=shared)
        one, two = (labelled(tmp_path / name, settings) for name in ("one", "two"))
        assert run_stages(settings, one.root, ONLY) == 0
        asked = len(server.requests)
        # A line that a dead process left behind costs that line, and its question.
        (journal,) = (tmp_path / "verdicts").glob("*.jsonl")
        whole = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join(whole[:-1]) + whole[-1][:-9] + b"\n{}\n[1]\n" + b'{"key": "')
        assert run_stages(settings, two.root, ONLY) == 0
        assert len(server.requests) == asked + 1
    assert labels(one, settings.label) == labels(two, settings.label)
    assert sum(r["cost_usd"] for r in judgements(two)) == pytest.approx(BILL)
    assert spent(two) == pytest.approx(BILL)


def test_a_budget_stops_the_judge_and_a_larger_one_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(verdict) as server:
        tight = config(server.url, collect={"budget_usd": 12 * BILL})
        run_dir = labelled(tmp_path / "r", tight)
        assert run_stages(tight, run_dir.root, ONLY) == 3
        assert "raise collect.budget_usd" in capsys.readouterr().err
        sent = len(server.requests)
        assert 0 < sent <= 12
        assert run_stages(tight, run_dir.root, ONLY) == 3
        assert len(server.requests) <= 12, "what was spent is remembered"
        ample = config(server.url, collect={"budget_usd": 9999.0})
        assert run_stages(ample, run_dir.root, ONLY) == 0
        assert set(contents(server).values()) == {1}
    assert "paid to APIs" in "\n".join(lines(status(run_dir.root, ample)))


@pytest.mark.slow
def test_an_interrupted_judge_keeps_the_replies_in_flight(tmp_path: Path) -> None:
    def slow(number: int, asked: dict[str, Any]) -> Answer:
        if number == 9:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
        return Answer(verdict(number, asked).body, delay=0.3 if number >= 8 else 0.0)

    with serve(slow) as server:
        settings = config(server.url)
        run_dir = labelled(tmp_path / "r", settings)
        with pytest.raises(KeyboardInterrupt):
            run_stages(settings, run_dir.root, ONLY)
        sent = len(server.requests)
        assert run_stages(settings, run_dir.root, ONLY) == 0
    assert set(contents(server).values()) == {1}, "nothing that was sent is asked again"
    assert sent < len(server.requests)


@pytest.mark.parametrize("stages", [("judge",), ("collect", "label", "judge")])
def test_a_judge_that_cannot_be_asked_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stages: tuple[str, ...]
) -> None:
    def refused(match: str, **changes: Any) -> None:
        with pytest.raises(UserError, match=match) as told:
            run_stages(config(url, judge=changes), tmp_path / "r", stages)
        assert "\n" not in str(told.value)
        assert not (tmp_path / "r" / "tables").exists()
        assert not (tmp_path / "r" / "parts" / "collect").exists()

    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    monkeypatch.setenv("MY_KEY", "sk-0123456789abc")
    (tmp_path / "file").write_text("")
    with serve(verdict, fault(401, "Incorrect API key")) as server:
        url = server.url
        refused(r"^judge m: no API key in \$NO_SUCH_KEY", api_key_env="NO_SUCH_KEY")
        refused(r"^judge m: .* refused the key in \$MY_KEY", api_key_env="MY_KEY")
        refused(r"wants a key.*api_key_env in the judge: section")
        refused(r"cache .* cannot be used.*judge.cache_dir", cache_dir=str(tmp_path / "file"))
        assert server.requests == []
    url = "http://127.0.0.1:9/v1"
    refused(r"^judge m: cannot reach .*base_url in the judge: section")


@pytest.mark.slow
def test_a_key_refused_in_the_middle_keeps_the_verdicts(tmp_path: Path) -> None:
    def revoked(number: int, asked: dict[str, Any]) -> Answer:
        return verdict(number, asked) if number < 10 else fault(401, "revoked")

    with serve(revoked) as server:
        run_dir = labelled(tmp_path / "r", config(server.url))
        with pytest.raises(UserError, match=r"^judge m: .*revoked"):
            run_stages(config(server.url), run_dir.root, ONLY)
        assert len(server.requests) <= 10 + 4
    with serve(verdict) as server:
        assert run_stages(config(server.url), run_dir.root, ONLY) == 0
        assert len(server.requests) == len({r["case"] for r in judgements(run_dir)}) - 10


def test_a_model_that_takes_no_temperature_is_no_judge(tmp_path: Path) -> None:
    said_no = "Unsupported value: 'temperature' does not support 0.0 with this model"
    with serve([fault(400, said_no, code="unsupported_value", param="temperature")]) as server:
        run_dir = labelled(tmp_path / "r", config(server.url, ("steady",)))
        with pytest.raises(UserError, match=r"^judge m: .*temperature.*name a model that takes it"):
            run_stages(config(server.url, ("steady",)), run_dir.root, ONLY)


def test_doctor_asks_the_judge_s_server() -> None:
    from jobs.doctor import checks

    def found(settings: RunConfig) -> list[tuple[str, str]]:
        # The machine first, then agents, then the judge: no further.
        seen = []
        for check in checks(settings, ray=False, limit=1):
            if check.what == "judge":
                return [*seen, (check.state, check.detail)]
        return seen

    with serve(verdict) as server:
        ((state, detail),) = found(config(server.url))
        assert (state, "takes the key" in detail) == ("ok", True)
    ((state, detail),) = found(config("http://127.0.0.1:9/v1"))
    assert (state, "cannot reach" in detail) == ("FAIL", True)


def test_a_label_of_another_judge_is_refused_before_anything_runs(tmp_path: Path) -> None:
    settings = config("http://127.0.0.1:9/v1", label="judge:other:00000000", judge={})
    with pytest.raises(UserError, match=r"no label 'judge:other:00000000': the run's judge is"):
        run_stages(settings, tmp_path / "r", ("collect", "label"))
    none = settings.model_copy(update={"judge": None})
    with pytest.raises(UserError, match="the run has no judge"):
        run_stages(none, tmp_path / "r", ("collect", "label"))
    with pytest.raises(UserError, match="the run has no judge"):
        run_stages(none, tmp_path / "r", ONLY)


@pytest.mark.slow
def test_a_second_judge_stands_beside_the_first(tmp_path: Path) -> None:
    with serve(verdict) as server:
        first = config(server.url)
        run_dir = labelled(tmp_path / "r", first)
        assert run_stages(first, run_dir.root, ONLY) == 0
        asked = len(server.requests)
        second = config(server.url, judge={"strict": "strict-2024", "max_rows": 9}, label="typed")
        assert not judge.is_complete(second, run_dir, "made", "steady")
        assert run_stages(second, run_dir.root, ("label", "judge")) == 0
        assert len(server.requests) == asked, "it reads the same: paid for already"
    found = set(run_dir.read("labels")["label"].to_pylist())
    assert {first.label, second.judge.label} <= found
    assert first.label != second.judge.label
    costs = {r["label"]: 0.0 for r in judgements(run_dir)}
    for row in judgements(run_dir):
        costs[row["label"]] += row["cost_usd"]
    assert costs == {first.label: pytest.approx(asked * BILL), second.judge.label: 0.0}


def test_the_command_line_names_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = config("http://127.0.0.1:9/v1").model_copy(update={"judge": None, "label": "typed"})
    run_dir = labelled(tmp_path / "r", settings)
    assert main(["judge", "--run-dir", str(run_dir.root)]) == 2
    assert "the run has no judge; add a judge: section" in capsys.readouterr().err
