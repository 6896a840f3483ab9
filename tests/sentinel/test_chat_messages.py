"""Messages to rounds: the moment after an action and before its feedback; characters as cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.chat_messages import ROLES, RecordError, transcript


def said(role: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "x", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_round_ends_after_its_action_and_before_the_feedback():
    found = transcript(
        [
            said("system", "policy"),
            said("user", "hello"),
            said("assistant", None, tool_calls=[call("look", '{"id": "007"}')]),
            said("tool", "FEEDBACK", tool_call_id="x", name="look"),
            said("assistant", "bye"),
            said("user", "###STOP###"),
        ]
    )
    assert found.rounds == 2
    assert found.through(1) == 'user: hello\nassistant: look {"id": "007"}\n'
    assert found.through(2).endswith("tool: FEEDBACK\nassistant: bye\n")
    # Prompt characters: policy and hello; then the call (18) and its result (8) besides.
    assert (found.prompt, found.generated) == ((11, 37), (18, 3))
    assert found.costs()[0] == found.prompt[0] + 4 * found.generated[0]
    assert found.costs()[1] == sum(found.prompt) + 4 * sum(found.generated)


def test_costs_by_hand():
    found = transcript(
        [
            said("system", "s" * 10),
            said("user", "u" * 5),
            said("assistant", "a" * 3),
            said("user", "v" * 2),
            said("assistant", "b" * 7),
        ]
    )
    assert found.prompt == (15, 20)
    assert found.generated == (3, 7)
    assert found.costs() == (15 + 12, 27 + 20 + 28)


def test_instructions_are_not_read_but_cost():
    plain = [said("user", "hi"), said("assistant", "ok")]
    told = transcript([said("developer", "be kind"), *plain])
    assert told.text == transcript(plain).text
    assert told.prompt == (9,)
    # After the first turn a system message is what the agent was told: feedback.
    later = transcript([*plain, said("system", "hurry"), said("assistant", "ok")])
    assert "hurry" in later.through(2)
    assert "hurry" not in later.through(1)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (said("assistant", None), ""),
        ({"role": "assistant"}, ""),
        (said("assistant", ""), ""),
        (said("assistant", ["a", {"type": "text", "text": "b"}]), "a\nb"),
        (said("assistant", [{"type": "output_text", "text": "a"}, {"type": "text"}]), "a"),
        (said("assistant", [{"type": "refusal", "refusal": "no"}]), "no"),
        (said("assistant", None, refusal="no"), "no"),
        (said("assistant", "b", reasoning_content="a"), "a\nb"),
        (said("assistant", "a", tool_calls=None), "a"),
        (said("assistant", "a", tool_calls=[]), "a"),
        (said("assistant", None, tool_calls=[call("f", {"x": "é"})]), 'f {"x": "é"}'),
        (said("assistant", None, tool_calls=[{"function": {"name": "f"}}]), "f"),
        (said("assistant", None, tool_calls=[call("f", "{"), call("g", "")]), "f {\ng"),
        (said("assistant", None, tool_calls=[{"name": "f", "arguments": "1"}]), "f 1"),
        (said("assistant", None, tool_calls=[{"custom": {"name": "f", "input": "1"}}]), "f 1"),
        (said("assistant", None, tool_calls=[{"function": None}]), '{"function": null}'),
        (said("assistant", None, tool_calls=["?"]), "?"),
        (said("assistant", None, function_call={"name": "f", "arguments": "1"}), "f 1"),
        (said("assistant", {"answer": 1}), '{"answer": 1}'),
        (said("assistant", 7), "7"),
        (said("assistant", "\ud800"), "\ud800"),
    ],
)
def test_forms_of_an_action(message: dict[str, Any], text: str):
    found = transcript([said("user", "q"), message])
    assert found.through(1) == f"user: q\nassistant: {text}\n"
    assert found.generated == (len(text),)


def test_parts_without_text_are_counted():
    image = {"type": "image_url", "image_url": {"url": "data:..."}}
    found = transcript([said("user", [image, {"type": "text", "text": "what?"}, 3]), said(
        "assistant", "a cat")])  # fmt: skip
    assert (found.other_parts, found.prompt) == (2, (5,))


def test_an_unbroken_run_of_assistant_messages_is_one_turn():
    found = transcript(
        [said("user", "q"), said("assistant", "I look."), said("assistant", None, tool_calls=[
            call("look", "")]), said("tool", "x"), said("assistant", "done")]
    )  # fmt: skip
    assert (found.rounds, found.merged) == (2, 1)
    assert found.through(1) == "user: q\nassistant: I look.\nassistant: look\n"
    assert found.prompt == (1, 13)
    assert found.generated == (11, 4)


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        (None, "messages are null, not a list"),
        ("[]", "messages are text, not a list"),
        (True, "messages are true"),
        ({}, "messages are an object"),
        ([], "no message of the assistant"),
        ([said("user", "q")], "no message of the assistant"),
        ([said("assistant", "a"), 3], "message 2 is a number"),
        ([["assistant", "a"]], "message 1 is a list"),
        ([{"content": "a"}], "message 1 has the unknown role null"),
        ([said("gpt", "a")], 'message 1 has the unknown role "gpt"'),
        ([said(["assistant"], "a")], "unknown role"),  # type: ignore[arg-type]
        ([said("assistant", None, tool_calls={"name": "f"})], "tool_calls that are an object"),
    ],
)
def test_what_cannot_be_read(messages: Any, says: str):
    with pytest.raises(RecordError, match=says.replace("[", r"\[")):
        transcript(messages)


contents = st.one_of(
    st.none(),
    st.text(max_size=8),
    st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=4)})),
)
message_lists = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(ROLES), "content": contents}), max_size=14
)


@given(message_lists)
def test_laws(messages: list[dict[str, Any]]):
    turns = sum(
        m["role"] == "assistant" and (i == 0 or messages[i - 1]["role"] != "assistant")
        for i, m in enumerate(messages)
    )
    if not turns:
        with pytest.raises(RecordError):
            transcript(messages)
        return
    found = transcript(messages)
    assert found.rounds == turns
    costs = found.costs()
    assert list(costs) == sorted(costs)
    assert list(found.prompt) == sorted(found.prompt)
    for r in range(1, turns):
        assert found.through(r + 1).startswith(found.through(r))
    # What comes after round r's action changes neither its text nor its cost.
    for r in range(1, turns + 1):
        ends = [
            i + 1
            for i, m in enumerate(messages)
            if m["role"] == "assistant"
            and (i + 1 == len(messages) or messages[i + 1]["role"] != "assistant")
        ]
        cut = transcript(messages[: ends[r - 1]])
        assert cut.through(r) == found.through(r)
        assert cut.costs() == costs[:r]
