"""The parser on what real models write, and its laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.agent.react import FORGIVEN, Action, Dialect, format, parse

Q = "select count(*) from patients"
ACTION = Dialect(act="ACTION", final=None, abstain=None)

READ = [
    # text, kind, action, forgiven
    (f"SQL: {Q}", "act", Q, ()),
    (f"THOUGHT: count\nSQL: {Q}", "act", Q, ()),
    (f"THOUGHT: count\nFINAL_SQL: {Q}", "final", Q, ()),
    ("FINAL: null", "abstain", "", ()),
    (f"Thought: count\nFinal_SQL: {Q}", "final", Q, ("label",)),
    (f"final_sql: {Q}", "final", Q, ("label",)),
    (f"FINAL SQL: {Q}", "final", Q, ("label",)),
    (f"Final-SQL: {Q}", "final", Q, ("label",)),
    (f"FINALSQL: {Q}", "final", Q, ("label",)),
    (f"Query: {Q}", "act", Q, ("label",)),
    (f"**SQL:** {Q}", "act", Q, ("markdown",)),
    (f"**SQL**: {Q}", "act", Q, ("markdown",)),
    (f"**FINAL_SQL: {Q}**", "final", Q, ("markdown",)),
    (f"### FINAL_SQL:\n{Q}", "final", Q, ("markdown", "line break")),
    (f"- SQL: {Q}", "act", Q, ("markdown",)),
    (f"1. SQL: {Q}", "act", Q, ("markdown",)),
    (f"> SQL: {Q}", "act", Q, ("markdown",)),
    (f"STEP 2 SQL: {Q}", "act", Q, ("step number",)),
    (f"SQL:\n{Q}", "act", Q, ("line break",)),
    (f"SQL: ```sql\n{Q}\n```", "act", Q, ("fence",)),
    (f"SQL:\n```\n{Q};\n```", "act", f"{Q};", ("line break", "fence")),
    (f"SQL: ```{Q}```", "act", Q, ("fence",)),
    (f"```sql\nSQL: {Q}\n```", "act", Q, ("fence",)),
    (f"FINAL_SQL: ```sql\n{Q}\n```\nIt counts.", "final", Q, ("fence", "prose after")),
    (f"FINAL_SQL: Here it is:\n```sql\n{Q}\n```", "final", Q, ("fence", "prose before")),
    (f"FINAL_SQL: ~~~\n{Q}\n~~~", "final", Q, ("fence",)),
    ("Final_SQL: ALTER TABLE a ADD b;\n```", "final", "ALTER TABLE a ADD b;", ("label", "fence")),
    ("SQL: ```DROP TABLE a```", "act", "DROP TABLE a", ("fence",)),
    (f"SQL: Update:\n```sql\n{Q}\n```", "act", Q, ("fence", "prose before")),
    (f'FINAL_SQL: "{Q}"', "final", Q, ("quotes",)),
    (f"FINAL_SQL: '{Q}'", "final", Q, ("quotes",)),
    (f"FINAL_SQL: `{Q}`", "final", Q, ("quotes",)),
    (f'SQL: """{Q}"""', "act", Q, ("quotes",)),
    (f"I will count.\n\nSQL: {Q}", "act", Q, ("prose before",)),
    (f"SQL: {Q};\n\nThis counts patients.", "act", f"{Q};", ("prose after",)),
    (f"SQL: {Q}\n\nThis counts patients.", "act", Q, ("prose after",)),
    (f"SQL: {Q};\nNow I wait.", "act", f"{Q};", ("prose after",)),
    (f"<think>SQL: nothing</think>\nSQL: {Q}", "act", Q, ("think block", "action in thought")),
    (f"THOUGHT: first SQL: select 2\nSQL: {Q}", "act", Q, ("action in thought",)),
    (f"SQL: {Q}\nRESULT: 5\nFINAL_SQL: select 5", "act", Q, ("invented observation",)),
    (f"SQL: {Q}\nObservation: 5", "act", Q, ("invented observation",)),
    (f"SQL: {Q}\nSTEP 2 RESULT: 5", "act", Q, ("invented observation",)),
    (f"SQL: {Q}\nQUESTION: and now?", "act", Q, ("invented observation",)),
    (f"SQL: {Q}\nSQL: {Q}", "act", Q, ("repeated",)),
    (f"SQL: {Q}\nFINAL_SQL: {Q}", "act", Q, ("several actions",)),
    (f"SQL: {Q}\nFINAL: null", "act", Q, ("several actions",)),
    ("FINAL: NULL", "abstain", "", ("null variant",)),
    ("FINAL:null.", "abstain", "", ("null variant",)),
    ("FINAL: `null`", "abstain", "", ("null variant",)),
    ("FINAL: None", "abstain", "", ("null variant",)),
    ("FINAL: null (not recorded)", "abstain", "", ("null variant",)),
    ("Final: null", "abstain", "", ("label",)),
    ("FINAL ANSWER: null", "abstain", "", ("label",)),
    ("FINAL_SQL: null", "abstain", "", ("FINAL_SQL: null",)),
    ("FINAL_SQL: NULL;", "abstain", "", ("FINAL_SQL: null",)),
    (f"FINAL: {Q}", "final", Q, ("FINAL: query",)),
    ("FINAL_SQL: select null", "final", "select null", ()),
    ("SQL: select a,\n\nb from t", "act", "select a,\n\nb from t", ()),
    ("SQL: select a\nfrom t\n\nwhere b = 1", "act", "select a\nfrom t\n\nwhere b = 1", ()),
    ("SQL: select ';\n\nx' from t", "act", "select ';\n\nx' from t", ()),
    ("SQL: select 'FINAL: null'", "act", "select 'FINAL: null'", ()),
    (f'{{"name": "sql", "arguments": {{"query": "{Q}"}}}}', "act", Q, ("json",)),
    (f'```json\n{{"SQL": "{Q}"}}\n```', "act", Q, ("json",)),
    (f'<tool_call>\n{{"name": "final_sql", "arguments": {{"sql": "{Q}"}}}}\n</tool_call>',
     "final", Q, ("json",)),
    (f'{{"action": "FINAL_SQL", "action_input": "{Q}"}}', "final", Q, ("json",)),
    ('{"FINAL": null}', "abstain", "", ("json",)),
    (f'{{"type": "function", "function": {{"name": "sql", "arguments": "{{\\"query\\": \\"{Q}\\"}}"'
     "}}", "act", Q, ("json",)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "action", "forgiven"), READ, ids=[r[0] for r in READ])
def test_forgives_by_name(text: str, kind: str, action: str, forgiven: tuple[str, ...]) -> None:
    found = parse(text)
    assert (found.kind, found.text) == (kind, action)
    assert set(found.forgiven) == set(forgiven)
    assert found.problem is None


REFUSED = [
    ("", "empty"),
    (" \n\t ", "empty"),
    ("I do not know.", "no action"),
    ("THOUGHT: maybe", "no action"),
    (f"THOUGHT: I would run SQL: {Q}", "start its own line"),
    ("THOUGHT: so FINAL: null", "start its own line"),
    ("SQL:", "empty"),
    ("FINAL_SQL:\n\n", "empty"),
    ("FINAL: 42", "takes only null"),
    ("FINAL: null values exist in this table", "takes only null"),
    ("SQL: null", "not null"),
    (f"<think>SQL: {Q}", "no action"),
    (f"RESULT: 4\nFINAL_SQL: {Q}", "invented observation"),
    (f"```sql\n{Q}\n```", "no action"),
    ('{"name": "search", "arguments": {}}', "names no action"),
    ('{"SQL": ["a"]}', "without text"),
    ("[" * 5000, "no action"),
    ('{"a":' * 5000, "no action"),
]


@pytest.mark.parametrize(("text", "problem"), REFUSED)
def test_malformed_says_why(text: str, problem: str) -> None:
    found = parse(text)
    assert found.kind == "malformed"
    assert problem in (found.problem or "")
    assert found.text == ""


@pytest.mark.parametrize("label", ["SQL", "FINAL_SQL", "FINAL"])
def test_what_the_token_limit_cut_off_is_no_action(label: str) -> None:
    # The remaining text is valid SQL, and still not what the model meant to write.
    text = f"THOUGHT: x\n{label}: select 1"
    found = parse(text, finish_reason="length")
    assert (found.kind, found.text) == ("malformed", "")
    assert "token limit" in (found.problem or "")
    assert parse(text).kind != "malformed"


@pytest.mark.parametrize(
    "text",
    [
        f"FINAL_SQL: ```sql\n{Q}\n```\nThis query cou",
        f"FINAL_SQL: {Q};\n\nThis query cou",
        f"FINAL_SQL: {Q}\nFINAL_SQL: select co",
        f"FINAL_SQL: {Q}\nRESULT: 1 row",
    ],
)
def test_an_action_that_was_finished_before_the_limit_counts(text: str) -> None:
    found = parse(text, finish_reason="length")
    assert (found.kind, found.text.rstrip(";")) == ("final", Q)


def test_thought_and_best_so_far() -> None:
    found = parse(f"THOUGHT: a\nb\nBEST_SO_FAR: {Q}\nSQL: select 1")
    assert (found.thought, found.best_so_far, found.text) == ("a\nb", Q, "select 1")
    assert parse(f"SQL: select 1\nBEST_SO_FAR: {Q}").best_so_far == Q
    assert parse("SQL: select 1\nBEST_SO_FAR: null").best_so_far is None
    assert parse("just prose").thought == "just prose"


def test_the_thought_after_an_action_is_not_this_turns() -> None:
    assert parse(f"THOUGHT: a\nSQL: {Q}\nTHOUGHT: b\nSQL: {Q}").thought == "a"


def test_one_line_commands() -> None:
    found = parse("THOUGHT: go\nAction: `get 2 stick`\nI wait.", ACTION)
    assert (found.kind, found.text) == ("act", "get 2 stick")
    assert found.forgiven == ("label", "quotes", "prose after")
    assert parse("ACTION: search[red shoes]", ACTION) == Action("act", text="search[red shoes]")
    assert parse("FINAL: null", ACTION).kind == "malformed"
    assert parse("SQL: select 1", ACTION).kind == "malformed"
    assert parse("ACTION: a\nOBSERVATION: done", ACTION).forgiven == ("invented observation",)


words = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters=":：{}<>`~\"'"),
    max_size=40,
).map(str.strip)
queries = words.map(lambda w: f"select {w} from t".strip())


@given(st.sampled_from(["act", "final", "abstain"]), words, queries, st.none() | queries)
def test_format_then_parse(kind: str, thought: str, query: str, best: str | None) -> None:
    text = "" if kind == "abstain" else query
    action = Action(kind, thought=thought, text=text, best_so_far=best)  # type: ignore[arg-type]
    assert parse(format(action)) == action


PIECES = (
    "SQL: |FINAL_SQL: |FINAL: |THOUGHT: |RESULT: |BEST_SO_FAR: |null|\n|\r|select 1|```|```sql"
    '|"|\'|`|**|{|}|{"SQL":|;| |\u2028|<think>|</think>|<tool_call>|STEP 1 |x|\ud800|\x00|[|:'
)
alphabet = st.sampled_from(PIECES.split("|"))


@given(st.lists(alphabet, max_size=30).map("".join), st.sampled_from(["stop", "length", None]))
def test_never_raises(text: str, finish_reason: str | None) -> None:
    for dialect in (Dialect(), ACTION):
        found = parse(text, dialect, finish_reason)
        assert (found.problem is not None) == (found.kind == "malformed")
        assert set(found.forgiven) <= set(FORGIVEN)
        assert bool(found.text) == (found.kind in ("act", "final"))


@given(st.text(max_size=200))
def test_never_raises_on_any_text(text: str) -> None:
    parse(text)


def test_long_hostile_turns_are_read_quickly() -> None:
    for text in (
        "*" * 100_000,
        "SQL " * 30_000,
        "THOUGHT:" * 10_000,
        "`" * 100_000,
        "\n" * 100_000,
    ):
        parse(text)


def test_format_refuses_what_would_be_read_differently() -> None:
    for action in (
        Action("malformed"),
        Action("act", thought="a\nSQL: x", text="select 1"),
        Action("final", text="select 1\nRESULT: 3"),
    ):
        with pytest.raises(ValueError, match=r"turn|label"):
            format(action)
    with pytest.raises(ValueError, match="dialect"):
        format(Action("abstain"), ACTION)
