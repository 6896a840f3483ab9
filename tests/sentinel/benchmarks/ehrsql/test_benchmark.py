import asyncio
from pathlib import Path

import pytest
from made_ehrsql import impossible, record, write_database, write_questions

from jobs.gold import counts, run_gold
from sentinel.agent.react import Action
from sentinel.benchmarks.base import DataError
from sentinel.benchmarks.registry import load
from sentinel.episodes import Episode, Turn
from sentinel.errors import UserError
from sentinel.features import trajectory_features
from sentinel.sql.grounding import ground
from sentinel.tables import FEATURES


def small(tmp_path: Path, records=None, **settings):
    path = write_questions(tmp_path / "q.json", records or [record(3), impossible(4)])
    database = tmp_path / "db.sqlite"
    if not database.exists():
        write_database(database)
    return load(
        {
            "kind": "ehrsql",
            "name": "tiny",
            "questions": str(path),
            "database": str(database),
            "version": "1.5.1",
            **settings,
        }
    )


def test_a_question_is_answered_by_its_gold_query(tmp_path):
    benchmark = small(tmp_path, [record(3, src_id="x", answer="['(3,)']"), impossible(4)])
    try:
        total = counts(run_gold(benchmark))
        assert (total.run, total.failed, total.reproduced, total.with_answer) == (1, 0, 1, 1)
        tasks = benchmark.tasks()
        assert [t.answerable for t in tasks] == [True, False]
        assert "create table admissions" in benchmark.system_prompt().lower()
        assert "2105-12-31 23:59:00" in benchmark.system_prompt()
    finally:
        benchmark.close()


def test_vital_ranges_are_numbers_for_the_agent_too(tmp_path):
    benchmark = small(tmp_path)

    async def play():
        env = benchmark.make_env(benchmark.tasks()[0])
        await env.reset()
        step = await env.step(Action("final", text="select sao2_lower, current_time"))
        await env.close()
        return step

    try:
        assert asyncio.run(play()).answer is not None
        assert "95.0" in asyncio.run(play()).answer
    finally:
        benchmark.close()


def test_placeholders_are_no_failed_references(tmp_path):
    schema = small(tmp_path).schema()
    query = "SELECT subject_id FROM admissions WHERE subject_id BETWEEN sao2_lower AND SAO2_upper"
    found = ground(query, schema)
    assert found is not None
    assert found.failed_refs == 0
    turn = Turn("w", "a", "e", 1, kind="act", action=query, status="ok", observation="[]")
    episode = Episode("w", "a", "e", "t", "g", 0, "cap", turns=1, steps=[turn])
    features = trajectory_features(episode, "how many?", schema, "2105-12-31 23:59:00")
    assert features[1, FEATURES.index("failed_refs")] == 0.0  # missing until it was agreed upon
    strange = ground(query.replace("sao2", "lactate"), schema)
    assert strange is not None
    assert strange.failed_refs == 1
    quoted = ground("SELECT [sao2_lower], a.sao2_lower FROM admissions a", schema)
    assert quoted is not None
    assert quoted.failed_refs == 2  # these the sandbox leaves alone


def test_the_fingerprint_follows_questions_database_and_clock(tmp_path):
    first = small(tmp_path).fingerprint()
    assert small(tmp_path).fingerprint() == first
    assert small(tmp_path, clock="2104-12-31 23:59:00").fingerprint() != first
    assert small(tmp_path, [record(5)]).fingerprint() != first


def test_the_official_test_split_needs_a_word(tmp_path):
    with pytest.raises(DataError, match="official test split"):
        small(tmp_path, [record(1, split="test")]).tasks()
    assert len(small(tmp_path, [record(1, split="test")], official_test=True).tasks()) == 1


def test_files_of_two_releases_or_with_one_id_are_refused(tmp_path):
    a = write_questions(tmp_path / "a.json", [record(1)])
    b = write_questions(tmp_path / "b.json", [record(1)])
    with pytest.raises(DataError, match="in two files"):
        small(tmp_path, questions=[str(a), str(b)]).tasks()
    other = write_questions(tmp_path / "c.json", [record(2, db_id="eicu")])
    with pytest.raises(DataError, match="differ in db_id"):
        small(tmp_path, questions=[str(a), str(other)]).tasks()


def test_a_missing_database_is_named_before_anything_runs(tmp_path):
    with pytest.raises(UserError, match="no database at"):
        small(tmp_path, database=str(tmp_path / "none.sqlite")).prepare(tmp_path)


def test_the_papers_pools_belong_to_the_papers_questions(tmp_path):
    assert small(tmp_path).published_pools == {"train": 6179, "calibration": 2160, "heldout": 2101}
    assert small(tmp_path, agent_share=0.4).published_pools is None
    assert small(tmp_path, [record(3, db_id="eicu")]).published_pools is None
