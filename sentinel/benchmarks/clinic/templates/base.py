"""What a question template is, and the few idioms that all gold SQL is composed of.

Gold SQL is short and regular on purpose: one sub-task has one form everywhere, so that a model of
less than a million parameters can learn it. `@name` expands an idiom, `{slot}` takes a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

IDIOMS: Mapping[str, str] = {
    "dx": "icd9_code = (select icd9_code from d_icd_diagnoses where short_title = '{diagnosis}')",
    "proc": "icd9_code = (select icd9_code from d_icd_procedures "
    "where short_title = '{procedure}')",
    "lab": "itemid = (select itemid from d_labitems where label = '{lab}')",
    "item": "itemid = (select itemid from d_items where label = '{item}')",
    "last": "hadm_id = (select hadm_id from admissions where subject_id = {patient} "
    "order by admittime desc limit 1)",
    "first": "hadm_id = (select hadm_id from admissions where subject_id = {patient} "
    "order by admittime limit 1)",
    "now": "hadm_id = (select hadm_id from admissions where subject_id = {patient} "
    "and dischtime is null)",
    "ill": "subject_id in (select subject_id from diagnoses_icd where @dx)",
    "illvisit": "hadm_id in (select hadm_id from diagnoses_icd where @dx)",
}
_IDIOM = re.compile(r"@(\w+)(?:\(([\w.]+)\))?")


def expand(sql: str) -> str:
    """SQL with every `@idiom` written out; `@since(c)` and `@year(c)` are windows on column c."""

    def replace(match: re.Match[str]) -> str:
        name, column = match.groups()
        if name == "since":
            return f"{column} >= datetime(current_time, '{{window}}')"
        if name == "year":
            return f"strftime('%Y', {column}) = '{{year}}'"
        return expand(IDIOMS[name])

    return _IDIOM.sub(replace, sql)


@dataclass(frozen=True, slots=True)
class Template:
    """An answerable question in several wordings, and its gold SQL.

    `slots` names value sources (`values.SOURCES`), each giving one or more slots; `asks` are the
    paraphrases. Every slot of the SQL stands in every paraphrase.
    """

    id: str
    family: str
    asks: tuple[str, ...]
    sql: str
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """An unanswerable subject: the schema lacks what these phrasings ask for."""

    id: str
    asks: tuple[str, ...]
    slots: tuple[str, ...]
    tempting: bool = False


def t(id: str, family: str, slots: str, sql: str, *asks: str) -> Template:
    """A template in one line: slots as words, SQL with idioms."""
    return Template(id, family, asks, expand(sql), tuple(slots.split()))
