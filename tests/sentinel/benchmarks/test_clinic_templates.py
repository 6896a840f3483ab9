import re
import statistics
from collections import Counter

import pytest

from sentinel.benchmarks.clinic import schema
from sentinel.benchmarks.clinic.groups import group_ids, normalise
from sentinel.benchmarks.clinic.templates import TEMPLATES, TOPICS, Template
from sentinel.benchmarks.clinic.templates.base import expand
from sentinel.benchmarks.clinic.values import CLOSED, QUERIES

SLOT = re.compile(r"{(\w+)}")


def tables_of(sql):
    return set(re.findall(r"\b(?:from|join) (\w+)", sql))


def test_enough_templates_families_tables():
    groups = set(group_ids(TEMPLATES).values())
    assert len(groups) >= 100
    assert len({t.family for t in TEMPLATES}) >= 30
    tables = set().union(*(tables_of(t.sql) for t in TEMPLATES))
    assert tables <= set(schema.NAMES)
    assert len(tables) >= 12
    assert tables == set(schema.NAMES)


def test_at_least_four_paraphrases_with_the_slots_of_the_sql():
    for template in TEMPLATES:
        assert len(set(template.asks)) == len(template.asks) >= 4, template.id
        slots = set(SLOT.findall(template.sql))
        assert slots, template.id
        for ask in template.asks:
            assert set(SLOT.findall(ask)) == slots, (template.id, ask)


def test_enough_topics_with_several_phrasings():
    assert len(TOPICS) >= 25
    assert sum(topic.tempting for topic in TOPICS) >= 8
    for topic in TOPICS:
        assert len(set(topic.asks)) == len(topic.asks) >= 4, topic.id
        for ask in topic.asks:
            assert SLOT.findall(ask), (topic.id, ask)


def test_ids_and_wordings_are_unique():
    ids = [x.id for x in (*TEMPLATES, *TOPICS)]
    assert len(ids) == len(set(ids))
    # two templates may not ask the same words and want different SQL
    asks = Counter(ask for x in (*TEMPLATES, *TOPICS) for ask in x.asks)
    assert [ask for ask, n in asks.items() if n > 1] == []


def test_slots_have_sources():
    for item in (*TEMPLATES, *TOPICS):
        given = [
            name
            for source in item.slots
            for name in (QUERIES[source][0] if source in QUERIES else (source,))
        ]
        assert all(s in QUERIES or s in CLOSED for s in item.slots), item.id
        assert len(given) == len(set(given)), item.id
        assert all(set(SLOT.findall(ask)) <= set(given) for ask in item.asks), item.id


def test_gold_sql_is_short_lower_case_and_regular():
    lengths = [len(t.sql) for t in TEMPLATES]
    assert statistics.median(lengths) < 160
    assert sum(n < 200 for n in lengths) / len(lengths) > 0.75
    for template in TEMPLATES:
        assert template.sql.replace("'%Y'", "") == template.sql.replace("'%Y'", "").lower()
        assert "  " not in template.sql
        assert "%y" not in template.sql  # NULL in SQLite before 3.44
        assert "now'" not in template.sql


def test_idioms_expand_within_idioms():
    assert expand("@illvisit and @since(x.y)") == (
        "hadm_id in (select hadm_id from diagnoses_icd where icd9_code = (select icd9_code from "
        "d_icd_diagnoses where short_title = '{diagnosis}')) and "
        "x.y >= datetime(current_time, '{window}')"
    )
    with pytest.raises(KeyError):
        expand("@unknown")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("select a from t where b = 'x'", "SELECT  a FROM t\nWHERE b = 'y''z'"),
        ("select a from t limit 1", "select a from t limit {k}"),
        ("select a from t where b > -1.5", "select a from t where b > 2"),
        ("select x.a from t as x where x.b = 1", "select t1.a from t t1 where t1.b = 7"),
        (
            "select avg(z) from (select sum(c) as z from t group by d)",
            "select avg(total) from (select sum(c) as total from t group by d)",
        ),
        (
            "select a from t where c >= datetime(current_time, '-1 year')",
            "select a from t where c >= datetime(current_time,'-6 month')",
        ),
    ],
)
def test_near_duplicates_are_equal_when_normalised(left, right):
    assert normalise(left) == normalise(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("select a from t where b = 'x'", "select a from t where c = 'x'"),
        ("select a from t order by b", "select a from t order by b desc"),
        ("select max(a) from t", "select min(a) from t"),
        ("select count(a) from t", "select count(distinct a) from t"),
        ("select a from t limit 1", "select a from t limit 1 offset 1"),
    ],
)
def test_different_queries_stay_different(left, right):
    assert normalise(left) != normalise(right)


def test_text_that_is_no_sql():
    with pytest.raises(ValueError, match="not a SQL statement"):
        normalise("select from where (")


def test_near_duplicate_templates_share_a_group():
    one = Template("b.top", "f", ("?",), "select drug from t group by drug limit {k}", ("k",))
    two = Template("a.most", "f", ("?",), "SELECT drug from t group by drug LIMIT 1", ("k",))
    three = Template("c", "f", ("?",), "select drug from u group by drug limit 1", ("k",))
    assert group_ids([one, two, three], TOPICS[:1]) == {
        "b.top": "b.top",
        "a.most": "b.top",
        "c": "c",
        TOPICS[0].id: TOPICS[0].id,
    }
