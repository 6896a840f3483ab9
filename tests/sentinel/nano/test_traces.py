"""Training episodes run on the real database, in the exact form the agents meet at run time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.agent.chat import ChatEncoder
from sentinel.agent.react import parse
from sentinel.benchmarks.clinic.benchmark import ClinicBenchmark
from sentinel.engine import Message
from sentinel.nano.habits import Habit, Rule
from sentinel.nano.recipe import encode, fit_tokenizer
from sentinel.nano.traces import Fabricator, Trace, make_traces, probes, subqueries


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClinicBenchmark]:
    benchmark = ClinicBenchmark()
    benchmark.prepare(tmp_path_factory.mktemp("clinic"))
    yield benchmark
    benchmark.close()


def traces(clinic: ClinicBenchmark, habit: Habit, n: int = 60) -> list[Trace]:
    tasks = clinic.agent_questions(3, n, unanswerable=0.3)
    return list(make_traces(tasks, habit, clinic.sandbox(), seed=5, fabricate=Fabricator(tasks)))


def test_subqueries_come_innermost_first_and_probes_stay_with_the_patient() -> None:
    sql = "select a from t where b = (select c from u where d in (select e from v)) and f = '(x'"
    assert subqueries(sql) == [
        "select e from v",
        "select c from u where d in (select e from v)",
    ]
    patient = "select a from t join u on t.x = u.x where subject_id = 42"
    assert probes(patient)[-2:] == [
        "select count(*) from t where subject_id = 42",
        "select count(*) from u where subject_id = 42",
    ]


def test_every_turn_parses_to_what_was_meant(clinic: ClinicBenchmark) -> None:
    for trace in traces(clinic, Habit(explore={0: 1, 2: 1, 4: 1}, thought=0.5)):
        kinds = [parse(text).kind for text in trace.wrote]
        assert kinds[:-1] == ["act"] * (len(kinds) - 1)
        assert kinds[-1] in ("final", "abstain")
        assert not any(parse(text).forgiven for text in trace.wrote)
        assert len(trace.told) == len(trace.wrote)


def test_refusing_fabricating_and_giving_up(clinic: ClinicBenchmark) -> None:
    tasks = clinic.agent_questions(3, 60, unanswerable=0.3)

    def abstained(habit: Habit) -> list[bool]:
        return [parse(t.wrote[-1]).kind == "abstain" for t in traces(clinic, habit)]

    assert abstained(Habit(refuse=1.0)) == [not t.answerable for t in tasks]
    assert not any(abstained(Habit(refuse=0.0)))
    assert all(abstained(Habit(rules=(Rule("give_up"),))))


def test_training_ids_are_the_ids_of_a_run(clinic: ClinicBenchmark, tmp_path: Path) -> None:
    tasks = clinic.agent_questions(3, 200)
    fit_tokenizer(tasks, clinic, tmp_path, seed=1)
    encoder = ChatEncoder.from_folder(tmp_path)
    for trace in traces(clinic, Habit(explore={2: 1}, thought=1.0), n=20):
        messages = []
        for told, wrote in zip(trace.told, trace.wrote, strict=True):
            messages += [Message("user", told), Message("assistant", wrote)]
        example = encode([trace], tmp_path)[0]
        prompt = encoder.encode(messages[:-1])
        assert tuple(example.ids[: len(prompt)]) == prompt
        assert not example.written[len(prompt) - 1]
        assert example.written[len(prompt) :].all()
