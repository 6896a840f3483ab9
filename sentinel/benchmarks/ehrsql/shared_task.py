"""EHRSQL-2024 (the shared task on MIMIC-IV): its files, and groups where they name none.

A split is a family of files beside each other: `valid.data.json`, `valid.label.json`, and where
they are there `valid.answer.json` and `valid.annotated.json` (or `data.json`, … in a folder of the
split's name; any of them `.xz`). Only `valid.annotated` names templates.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from sentinel.benchmarks.base import DataError, Task
from sentinel.benchmarks.ehrsql.benchmark import EhrsqlBenchmark
from sentinel.benchmarks.ehrsql.questions import Question, QuestionFile, literal, read_bytes
from sentinel.sql.lexer import tokens

CLOCK = "2100-12-31 23:59:00"
KNOWN = ("1.1.1",)
"""Versions whose files were read for this loader."""
DB_ID = "mimic_iv"
SIMILAR = 0.5
"""Share of common words from which two unanswerable questions are one group."""
_LINKS = frozenset({"hadm_id", "subject_id", "stay_id", "row_id", "icd_code", "itemid"})
_LEFT_OUT = re.compile(r".*(time|date)|c\d+")
_NO_TEMPLATE = ("", "-")
Groups = Literal["template", "skeleton"]


class Ehrsql2024Benchmark(EhrsqlBenchmark):
    """EHRSQL-2024's questions on MIMIC-IV, with a text-to-SQL environment.

    `questions` names the `data` file of one or more splits; labels, answers and annotations lie
    beside it. `groups` is `template` (every file needs its `annotated` one), `skeleton` (see
    `skeleton`), or None: templates where all files have them. The other settings are EHRSQL's.
    """

    scorer = "strict-2024"

    def __init__(
        self,
        name: str = "ehrsql2024",
        *,
        questions: str | Sequence[str],
        database: str,
        clock: str = CLOCK,
        version: str | None = None,
        groups: Groups | None = None,
        official_test: bool = False,
        tables_file: str | None = None,
        agent_share: float | str | None = None,
        agent_seed: int = 7,
        sandbox_workers: int = 1,
    ) -> None:
        super().__init__(
            name,
            questions=questions,
            database=database,
            clock=clock,
            version=version,
            official_test=official_test,
            tables_file=tables_file,
            agent_share=agent_share,
            agent_seed=agent_seed,
            sandbox_workers=sandbox_workers,
        )
        if groups not in (None, "template", "skeleton"):
            raise DataError(f"{name}: groups is {groups!r}", "set it to template or skeleton")
        self.groups = groups

    def agent_questions(self, seed: int, n: int, *, unanswerable: float = 0.06) -> Sequence[Task]:
        """As for EHRSQL; gold queries in lower case, as an embedded agent's vocabulary has them.

        SQL means the same in either case, and every text of the database is in lower case.
        """
        made = super().agent_questions(seed, n, unanswerable=unanswerable)
        return [t if t.gold is None else replace(t, gold=t.gold.lower()) for t in made]

    def _read(self) -> list[QuestionFile]:
        return read_splits([Path(p) for p in self.paths], self.version, self.groups)


def read_splits(
    paths: Sequence[Path], version: str | None = None, groups: Groups | None = None
) -> list[QuestionFile]:
    """The splits of some `data` files, grouped alike.

    Raises DataError for files that are missing, malformed or do not belong together, a version that
    is unknown and not declared, and for `groups: template` where a split has none.
    """
    splits = [_Split(path, version) for path in paths]
    annotated = all(s.templates is not None for s in splits)
    if groups == "template" and not annotated:
        lacking = next(s.path for s in splits if s.templates is None)
        raise DataError(
            f"{lacking} has no annotated file beside it, and so no templates",
            "set groups: skeleton, or name splits with an annotated file",
        )
    by_template = annotated if groups is None else groups == "template"
    words = {q["id"]: q["question"] for s in splits for q in s.records if s.gold(q) is None}
    alike = similar_groups(words)
    return [s.file(by_template, alike) for s in splits]


class _Split:
    """One split: its files, checked against each other."""

    def __init__(self, path: Path, declared: str | None) -> None:
        self.path = path
        raw = read_bytes(path)
        parts = [raw]
        data = _json(path, raw)
        if not isinstance(data, dict) or not isinstance(data.get("data"), list):
            raise DataError(
                f"{path} is no data file of EHRSQL-2024",
                "name the file whose name says data, such as valid.data.json",
            )
        self.split, self.version = _version(path, str(data.get("version", "")), declared)
        self.records: list[dict[str, Any]] = data["data"]
        lacks = [i for i, r in enumerate(self.records) if not {"id", "question"} <= r.keys()]
        if lacks or not self.records:
            raise DataError(f"{path}: record {lacks[:1] or 0} lacks id or question", "get it again")
        found: dict[str, Any] = {}
        for part in ("label", "answer", "annotated"):
            beside = _beside(path, part)
            if beside is not None:
                parts.append(read_bytes(beside))
                found[part] = _json(beside, parts[-1])
        if "label" not in found:
            raise DataError(
                f"{path} has no label file beside it", "put the split's gold queries there"
            )
        self.labels: Mapping[str, str] = found["label"]
        self.answers: Mapping[str, str] = found.get("answer", {})
        self.templates: dict[str, str] | None = None
        if "annotated" in found:
            self.templates = {r["id"]: r["template"] for r in found["annotated"]}
        ids = {r["id"] for r in self.records}
        for what, known in (
            ("label", self.labels),
            ("answer", found.get("answer")),
            ("annotated", self.templates),
        ):
            if known is not None and not ids <= known.keys():
                raise DataError(
                    f"{path}: {len(ids - known.keys())} questions are not in the {what} file",
                    "take both files from one release",
                )
        self.sha256 = hashlib.sha256(b"".join(parts)).hexdigest()

    def gold(self, record: Mapping[str, Any]) -> str | None:
        """The gold query, None for a question without an answer."""
        query = self.labels[record["id"]]
        return None if query.strip().lower() == "null" else query

    def file(self, by_template: bool, alike: Mapping[str, str]) -> QuestionFile:
        """The split as the loader of EHRSQL knows it."""
        questions = [self._question(r, by_template, alike) for r in self.records]
        return QuestionFile(self.path, self.version, DB_ID, questions, self.sha256)

    def _question(
        self, record: Mapping[str, Any], by_template: bool, alike: Mapping[str, str]
    ) -> Question:
        gold, number = self.gold(record), str(record["id"])
        template = (self.templates or {}).get(number, "")
        if gold is None:
            group = alike[number]
        elif by_template and template not in _NO_TEMPLATE:
            group = template
        else:
            group = skeleton(gold)
        answer = self.answers.get(number)
        where = f"{self.path}: question {number}"
        known = None if gold is None or not self.answers else literal(where, answer)
        if known is not None and not all(isinstance(row, list) for row in known):
            raise DataError(f"{where} has an answer whose rows are no lists", "get the file again")
        meta = {"template": template} if template not in _NO_TEMPLATE else {}
        return Question(
            id=number,
            text=record["question"],
            query=gold,
            group=group,
            db_id=DB_ID,
            split=self.split,
            source_id=number,
            regrounded=False,
            answer=None if known is None else tuple(map(tuple, known)),
            meta=meta,
        )


def skeleton(gold: str) -> str:
    """What a gold query is about: its tables and columns, without keys, times and values.

    It stands for a template where none is given. On the 931 annotated questions of `valid` no
    template has two skeletons (134 templates, 68 skeletons), so that no template is ever in two
    pools; some groups hold several templates.

    >>> skeleton("SELECT DISTINCT p.route FROM p WHERE p.drug = 'x' AND p.starttime > '2100'")
    'skeleton: @p drug route'
    """
    code = [t for t in tokens(gold.lower()) if not t.ignored]
    found: set[str] = set()
    for i, token in enumerate(code):
        after = code[i + 1 : i + 3]
        if token.kind == "word" and len(after) == 2 and after[0].text == ".":
            column = after[1].text
            if column not in _LINKS and not _LEFT_OUT.fullmatch(column):
                found.add(column)
        if token.text in ("from", "join") and after and after[0].kind == "word":
            found.add(f"@{after[0].text}")
    return f"skeleton: {' '.join(sorted(found))}"


def similar_groups(texts: Mapping[str, str]) -> dict[str, str]:
    """Group of each question without an answer: those chained by common words, named by one id.

    Two questions are linked when they share at least half of their words, so that a paraphrase
    never crosses into another pool.
    """
    words = [(i, frozenset(re.findall(r"[a-z]+", t.lower()))) for i, t in sorted(texts.items())]
    parent = list(range(len(words)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in _linked([w for _, w in words]):
        parent[max(root(i), root(j))] = min(root(i), root(j))
    return {number: f"words: {words[root(i)][0]}" for i, (number, _) in enumerate(words)}


def _linked(words: Sequence[frozenset[str]]) -> Iterator[tuple[int, int]]:
    for i, one in enumerate(words):
        for j in range(i):
            if len(one & words[j]) >= SIMILAR * max(len(one | words[j]), 1):
                yield i, j


def _json(path: Path, raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError as error:
        raise DataError(f"{path} is no JSON: {error}", "get the official file again") from error


def _beside(path: Path, part: str) -> Path | None:
    """The file of another part of the split, packed or not."""
    head, _, tail = path.name.rpartition("data")
    stem = tail.removesuffix(".xz")
    for name in (f"{head}{part}{stem}", f"{head}{part}{stem}.xz"):
        if path.with_name(name).is_file():
            return path.with_name(name)
    return None


def _version(path: Path, text: str, declared: str | None) -> tuple[str, str]:
    """Split and version of a text such as `valid_v1.1.1`; where it is silent, the name tells."""
    match = re.fullmatch(r"([a-z]+)_v(\d+(?:\.\d+)*)", text)
    split, found = match.groups() if match else ("", "")
    if declared is not None and found and declared != found:
        raise DataError(
            f"{path} is of version {found}, not {declared}",
            f"set version: {found}, or name the other file",
        )
    if (not found and declared is None) or found not in ("", *KNOWN, declared):
        raise DataError(
            f"{path} is of an unknown version ({text or 'none given'}; known: {', '.join(KNOWN)})",
            "if it is an official file, declare it: version: " + (found or "1.1.1"),
        )
    return split or _named(path), f"2024-{found or declared}"


def _named(path: Path) -> str:
    """The split that a file's name speaks of, else its folder's; empty where neither does."""
    for name in (path.name, path.parent.name):
        words = re.split(r"[^a-z]+", name.lower())
        for split in ("test", "valid", "train"):
            if split in words:
                return split
    return ""
