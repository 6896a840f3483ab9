"""How `react.parse` reads one turn: sections by label, then the decoration around an action."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sentinel.agent.react import Action, Dialect, Kind

_SQL_START = re.compile(r"(?:\(\s*)*(?:select|with|values|explain)\b|--|/\*", re.IGNORECASE)
_CHANGE = re.compile(r"(?:alter|create|delete|drop|insert|pragma|replace|update)\b", re.IGNORECASE)
"""What the sandbox refuses is a model's action all the same."""
_CLAUSE = re.compile(
    r"(?:select|from|where|group|order|having|limit|offset|union|intersect|except|join|left|right"
    r"|inner|cross|natural|full|and|or|on|using|with|case|when|then|else|end|as|window|values)\b"
    r"|[^\w\s]|--",
    re.IGNORECASE,
)
_FENCE = re.compile(r"[ \t]*(?:```+|~~~+)[ \t]*[\w+-]*[ \t]*")
_THINK = re.compile(r"\s*<(think|thinking|reasoning)>(.*?)(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_NULL = re.compile(r"""["'`*_(\[]*(null|none)["'`*_)\]]*\s*(?=[.,;:!(\-–—\n]|\Z)""", re.IGNORECASE)
_OPEN = (",", "(", "=", "<", ">", "+", "-", "*", "/", "|")
_TOOL_TAG = re.compile(r"</?tool_call>", re.IGNORECASE)
_OBSERVATIONS = ("RESULT", "RESULTS", "OBSERVATION", "QUESTION")
_ACT_TOOLS = {"SQL", "QUERY", "SQL_QUERY", "EXECUTE_SQL", "RUN_SQL", "EXECUTE_QUERY", "RUN_QUERY"}
_FINAL_TOOLS = {"FINAL_SQL", "FINAL", "FINAL_ANSWER", "ANSWER", "SUBMIT"}
_ARGUMENTS = ("SQL", "QUERY", "SQL_QUERY", "ACTION", "COMMAND", "INPUT", "ANSWER", "FINAL_SQL")


@lru_cache(maxsize=16)
def _roles(dialect: Dialect) -> dict[str, str]:
    """Normalised label → role: thought, act, final, close, best or observation."""
    roles = {"THOUGHT": "thought", "THOUGHTS": "thought", "BEST_SO_FAR": "best"}
    roles |= dict.fromkeys(_OBSERVATIONS, "observation")
    if dialect.is_sql:
        roles |= {"QUERY": "act", "SQL_QUERY": "act"}
    if dialect.final is not None:
        roles[dialect.final.upper()] = "final"
        if dialect.is_sql:
            roles |= {"FINAL_QUERY": "final", "FINAL_SQL_QUERY": "final"}
    if dialect.abstain is not None:
        roles |= {dialect.abstain.partition(":")[0].upper(): "close", "FINAL_ANSWER": "close"}
    roles[dialect.act.upper()] = "act"
    return roles


@lru_cache(maxsize=16)
def label_pattern(dialect: Dialect) -> re.Pattern[str]:
    """A label at the start of a line, with the decoration that models put around it."""
    names = sorted(_roles(dialect), key=len, reverse=True)
    words = "|".join(re.escape(name).replace("_", r"[_\- ]?") for name in names)
    return re.compile(
        r"^(?P<mark>[ \t>#*+\-_`~\"'\[(]{0,8}(?:\d{1,3}[.)][ \t]{0,2})?[*_`]{0,3})"
        r"(?P<step>STEP[ \t]{1,2}\d{1,3}[ \t:.\-]{0,3})?"
        rf"(?P<label>{words})"
        r"(?P<close>[ \t]{0,2}[*_`\"'\])]{0,3}[ \t]{0,2})[:：]"
        r"(?P<bold>\*{1,2}|__|`(?!`))?[ \t]*",
        re.IGNORECASE | re.MULTILINE,
    )


def _canonical(dialect: Dialect) -> tuple[str | None, ...]:
    close = (dialect.abstain or "").partition(":")[0]
    return (dialect.act, dialect.final, close, "THOUGHT", "BEST_SO_FAR")


@dataclass(frozen=True, slots=True)
class _Section:
    role: str
    body: str
    forgiven: frozenset[str]
    last: bool


class Reader:
    """Reads one turn of one dialect; collects by name what it forgave."""

    def __init__(self, dialect: Dialect, cut_off: bool) -> None:
        self.dialect = dialect
        self.cut_off = cut_off
        self.forgiven: set[str] = set()

    def read(self, text: str) -> Action:
        """The turn as an Action; never raises."""
        thoughts: list[str] = []
        while match := _THINK.match(text):
            self.forgiven.add("think block")
            thoughts.append(match.group(2))
            text = text[match.end() :]
        text = self._cut_observation(text)
        sections = list(self._sections(text))
        actions = [s for s in sections if s.role in ("act", "final", "close")]
        thoughts += self._thoughts(sections, text, bool(actions))
        best = next((s for s in sections if s.role == "best"), None)
        if actions:
            action = self._labelled(actions)
        else:
            action = self._tool_call(text) or self._nothing(text)
        if best is not None:
            self.forgiven |= best.forgiven
        thought = "\n".join(t for t in (_plain(t) for t in thoughts) if t)
        if action.kind != "malformed" and self._mentions_action(thought):
            self.forgiven.add("action in thought")
        return Action(
            action.kind,
            action.thought or thought,
            action.text,
            self._best(best),
            tuple(self.forgiven),
            action.problem,
        )

    # -- sections ---------------------------------------------------------------------------------

    def _cut_observation(self, text: str) -> str:
        for match in label_pattern(self.dialect).finditer(text):
            if self._role(match) == "observation":
                self.forgiven.add("invented observation")
                self.cut_off = False  # what follows was cut by us, so nothing before it is partial
                return text[: match.start()]
        return text

    def _sections(self, text: str) -> Iterator[_Section]:
        matches = list(label_pattern(self.dialect).finditer(text))
        if not matches or text[: matches[0].start()].strip():
            end = matches[0].start() if matches else len(text)
            yield _Section("prose", text[:end], frozenset(), not matches)
        for i, match in enumerate(matches):
            end = matches[i + 1].start() if i + 1 < len(matches) else len(text)
            body, forgiven = text[match.end() : end], set[str]()
            label = match.group("label")
            if label not in _canonical(self.dialect):
                forgiven.add("label")
            if match.group("step"):
                forgiven.add("step number")
            if match.group("mark").strip() or match.group("close").strip() or match.group("bold"):
                forgiven.add("markdown")
                body = _unmark(body, match.group("mark"))
            role = self._role(match)
            if role != "thought" and body[:1] in ("\n", "\r") and body.strip():
                forgiven.add("line break")
            yield _Section(role, body, frozenset(forgiven), i + 1 == len(matches))

    def _role(self, match: re.Match[str]) -> str:
        roles, label = _roles(self.dialect), match.group("label").upper()
        name = re.sub(r"[_\- ]", "_", label)
        return roles.get(name) or next(
            role for key, role in roles.items() if key.replace("_", "") == name.replace("_", "")
        )

    def _thoughts(self, sections: list[_Section], text: str, acted: bool) -> list[str]:
        found = []
        for section in sections:
            if section.role == "thought":
                self.forgiven |= section.forgiven
                found.append(section.body if acted else _until_json(section.body))
            elif section.role == "prose" and (prose := _plain(section.body)):
                prose = prose if acted else _plain(_until_json(prose))
                if prose and (acted or len(sections) > 1):
                    self.forgiven.add("prose before")
                found.append(prose)
            elif section.role in ("act", "final", "close"):
                break  # what follows the first action is no part of this turn's thinking
        return found

    def _mentions_action(self, thought: str) -> bool:
        names = [n for n, r in _roles(self.dialect).items() if r in ("act", "final", "close")]
        return bool(re.search(rf"\b(?:{'|'.join(names)})\s?:", thought))

    def _best(self, section: _Section | None) -> str | None:
        if section is None or (self.cut_off and section.last):
            return None
        text = self._bare(section.body, set())
        return None if not text or _NULL.fullmatch(text) else text

    # -- the action -------------------------------------------------------------------------------

    def _labelled(self, actions: list[_Section]) -> Action:
        first, *others = actions
        forgiven = set(first.forgiven)
        body = self._bare(first.body, forgiven)
        self.forgiven |= forgiven
        if others:
            same = all(self._bare(o.body, set()) == body and o.role == first.role for o in others)
            self.forgiven.add("repeated" if same else "several actions")
        whole = not first.last or bool(forgiven & {"prose after", "closed fence"})
        self.forgiven.discard("closed fence")
        if self.cut_off and not whole:
            return Action("malformed", problem="the token limit cut the action off")
        if self.cut_off:
            self.forgiven.add("cut off after the action")
        return self._decide(first.role, body)

    def _decide(self, role: str, body: str) -> Action:
        null = _NULL.match(body) if self.dialect.abstain is not None else None
        if not body:
            return Action("malformed", problem="the action is empty")
        if role == "act":
            if null and null.end() == len(body):
                return Action("malformed", problem=f"{self.dialect.act} needs an action, not null")
            return Action("act", text=body)
        if role == "final" and not (null and null.end() == len(body.rstrip(".;"))):
            return Action("final", text=body)
        if null:
            if role == "final":
                self.forgiven.add("FINAL_SQL: null")
            elif body != (self.dialect.abstain or "").partition(":")[2].strip():
                self.forgiven.add("null variant")
            return Action("abstain")
        if self.dialect.final is not None and _SQL_START.match(body):
            self.forgiven.add("FINAL: query")
            return Action("final", text=body)
        expected = f"{self.dialect.final} or {self.dialect.abstain}"
        return Action("malformed", problem=f"FINAL takes only null: end with {expected}")

    def _nothing(self, text: str) -> Action:
        if self.cut_off:
            return Action("malformed", problem="the token limit cut the turn off before an action")
        if "invented observation" in self.forgiven and not text.strip():
            return Action("malformed", problem="the turn is an invented observation")
        if self._mentions_action(text):
            return Action("malformed", problem="the action must start its own line")
        return Action("malformed", problem="the turn has no action")

    def _bare(self, body: str, forgiven: set[str]) -> str:
        """The action without fence, quotes and prose around it."""
        body = self._unfence(body.strip(), forgiven)
        if self.dialect.is_sql:
            body = _cut_prose(body, forgiven)
        else:
            line, _, rest = body.partition("\n")
            if rest.strip():
                forgiven.add("prose after")
            body = line.strip()
        for quote in ('"""', "'''", '"', "'", "`"):
            inner = body[len(quote) : -len(quote)].strip()
            quoted = len(body) > 2 * len(quote) and body.startswith(quote) and body.endswith(quote)
            if quoted and (_SQL_START.match(inner) or not self.dialect.is_sql):
                forgiven.add("quotes")
                return inner
        return body

    def _unfence(self, body: str, forgiven: set[str]) -> str:
        lines = body.split("\n")
        marks = [i for i, line in enumerate(lines) if line.strip().startswith(("```", "~~~"))]
        if not marks:
            return body
        forgiven.add("fence")
        first = marks[0]
        before = "\n".join(lines[:first]).strip()
        after = "\n".join(lines[first + 1 :]).strip()
        query = _SQL_START.match(before) or (_CHANGE.match(before) and not after)
        if before and (query or not self.dialect.is_sql):
            if after:
                forgiven.add("prose after")
            forgiven.add("closed fence")
            return before  # the label stood inside the fence; this mark closes it
        if before:
            forgiven.add("prose before")
        inline = lines[first].strip().lstrip("`~ ")
        named = _SQL_START.match(inline) or _CHANGE.match(inline)
        if not named and (tag := re.match(r"[\w+-]*(?:\s+|\Z)", inline)):
            inline = (
                inline[tag.end() :] if self.dialect.is_sql or tag.end() == len(inline) else inline
            )
        if "```" in inline:  # ```select 1``` on one line
            forgiven.add("closed fence")
            return inline[: inline.index("```")].strip()
        end = marks[1] if len(marks) > 1 else len(lines)
        if len(marks) > 1:
            forgiven.add("closed fence")
            if "\n".join(lines[end + 1 :]).strip():
                forgiven.add("prose after")
        return "\n".join([inline, *lines[first + 1 : end]]).strip()

    # -- tool calls in JSON -----------------------------------------------------------------------

    def _tool_call(self, text: str) -> Action | None:
        call = _json_object(text)
        if call is None:
            return None
        self.forgiven.add("json")
        keys = {re.sub(r"[\- ]", "_", str(k)).upper(): v for k, v in call.items()}
        thought = keys.get("THOUGHT", "")
        thought = thought if isinstance(thought, str) else ""
        if isinstance(keys.get("FUNCTION"), dict):
            keys |= {str(k).upper(): v for k, v in keys["FUNCTION"].items()}
        for name, role in _roles(self.dialect).items():
            if role in ("act", "final", "close") and name in keys and "NAME" not in keys:
                if name == "ACTION" and {"ACTION_INPUT", "ARGUMENTS"} & keys.keys():
                    continue
                return self._called(role, keys[name], thought)
        name = str(keys.get("NAME", keys.get("ACTION", keys.get("TOOL", ""))))
        name = re.sub(r"[\- ]", "_", name).upper()
        value = next(
            (keys[k] for k in ("ARGUMENTS", "ACTION_INPUT", "PARAMETERS", "INPUT") if k in keys), ""
        )
        if name in _FINAL_TOOLS and self.dialect.final is not None:
            return self._called("close" if name == "FINAL" else "final", value, thought)
        if name in _ACT_TOOLS or name == self.dialect.act.upper():
            return self._called("act", value, thought)
        return Action("malformed", thought, problem="a tool call that names no action")

    def _called(self, role: str, value: Any, thought: str) -> Action:
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = _json_object(value) or value
        if isinstance(value, dict):
            upper = {str(k).upper(): v for k, v in value.items()}
            value = next((upper[k] for k in _ARGUMENTS if k in upper), "")
        if value is None:
            value = "null"
        if not isinstance(value, str):
            return Action("malformed", thought, problem="a tool call without text for its action")
        action = self._decide(role, self._bare(value, self.forgiven))
        self.forgiven.discard("closed fence")
        return Action(action.kind, thought, action.text, problem=action.problem)


def _json_object(text: str) -> dict[str, Any] | None:
    """The first JSON object that starts a line (or follows a tag or a fence)."""
    text = _TOOL_TAG.sub("\n", text)
    for match in re.finditer(r"^[ \t]*(?:```\w*[ \t]*)?(?=\{)", text, re.MULTILINE):
        try:
            value, _ = json.JSONDecoder(strict=False).raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def _until_json(body: str) -> str:
    match = re.search(r"^[ \t]*(?:```\w*\s*|<tool_call>\s*)?\{", body, re.MULTILINE)
    return body[: match.start()] if match and _json_object(body[match.start() :]) else body


def _cut_prose(body: str, forgiven: set[str]) -> str:
    """Drop what follows a query: after `;` at a line's end, or a paragraph that is no SQL."""
    at = 0
    for line in body.split("\n")[:-1]:
        at += len(line) + 1
        done, rest = body[:at].rstrip(), body[at:]
        if not rest.strip() or done.count("'") % 2 or not _SQL_START.match(done.lstrip("\"'`")):
            continue
        if done.endswith(_OPEN) or done.count("(") > done.count(")"):
            continue
        ended = done.endswith(";") and not _SQL_START.match(rest.lstrip())
        paragraph = not rest.split("\n", 1)[0].strip()
        if (ended or paragraph) and not _CLAUSE.match(rest.lstrip()):
            forgiven.add("prose after")
            return done
    return body


def _unmark(body: str, mark: str) -> str:
    """Close what the mark before a label opened: `**SQL: select 1**`."""
    for sign in ("**", "__", "`"):
        stripped = body.rstrip()
        if sign in mark and stripped.endswith(sign) and stripped.count(sign) % 2:
            return stripped[: -len(sign)]
    return body


def _plain(text: str) -> str:
    """A thought without lines that are only fence marks."""
    lines = [ln for ln in text.split("\n") if not (_FENCE.fullmatch(ln) and ln.strip())]
    return "\n".join(lines).strip()


__all__ = ["Kind", "Reader", "label_pattern"]
