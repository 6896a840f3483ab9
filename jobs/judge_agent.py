"""One agent's answers on their way to a judge's verdicts, for the stage `judge`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cluster.judge_ask import Question, ask_all
from cluster.judge_cases import Case, cases
from cluster.label_stages import LABEL
from sentinel.judge.rules import Opinion, label_row
from sentinel.tables import JUDGEMENTS, LABELS

if TYPE_CHECKING:
    from cluster.head_stages import Where
    from cluster.judge_cache import VerdictCache
    from cluster.progress import Progress
    from cluster.run_dir import RunDir
    from jobs.judge_section import JudgeSection
    from sentinel.engine import Engine


class AgentAnswers:
    """One agent's answers on their way to verdicts."""

    def __init__(
        self, section: JudgeSection, where: Where, rows: list[dict[str, Any]], cache: VerdictCache
    ) -> None:
        self.section, self.where, self.rows, self.cache = section, where, rows, cache
        self.cases: dict[str, Case] = cases(where, rows, section.prompt, section.model)
        self.known = {c.key for c in self.cases.values() if cache.get(c.key) is not None}
        self.errors: dict[str, str] = {}

    def _questions(self) -> list[Question]:
        """What is not in the cache, each content once, by its first episode."""
        first: dict[str, Question] = {}
        for case in sorted(self.cases.values(), key=lambda c: c.episode_id):
            if case.key not in self.known:
                payer = self._payer(case)
                first.setdefault(case.key, Question(case.key, case.shown, payer))
        return list(first.values())

    async def ask(self, engine: Engine, progress: Progress, stopped: str | None) -> str | None:
        """Ask what is not known, unless asking was stopped before; why it is stopped now."""
        copies = Counter(case.key for case in self.cases.values())
        progress.advance(sum(copies[key] for key in self.known))
        questions = self._questions()
        if stopped is not None:
            self.errors = {q.key: stopped for q in questions}
            return stopped

        def done(key: str, failed: bool) -> None:
            progress.advance(copies[key], failed=copies[key] if failed else 0)

        found = await ask_all(
            engine,
            questions,
            self.cache,
            self.section.label,
            max_tokens=self.section.max_tokens,
            concurrency=self.section.concurrency,
            done=done,
        )
        self.errors = found.errors
        return found.stopped

    def commit(self, run_dir: RunDir, input_hash: str) -> None:
        """Write the agent's rows of `labels` and `judgements`, and its numbers."""
        label = self.section.label
        labels, judgements = [], []
        for row in self.rows:
            case = self.cases.get(row["episode_id"])
            opinion = None if case is None else self._opinion(case)
            labels.append(label_row(label, row, opinion))
            if case is not None and opinion is not None:
                judgements.append(self._judgement(case, opinion))
        tables = {
            "labels": LABELS.from_rows(labels),
            "judgements": JUDGEMENTS.from_rows(judgements),
        }
        place = self.where.benchmark, self.where.agent
        run_dir.commit(LABEL, *place, label, tables, input_hash)
        costs = [row["cost_usd"] for row in judgements if row["cost_usd"] is not None]
        why = Counter(row["error"] for row in judgements if row["error"] is not None)
        run_dir.metric(
            "judge",
            event="judged",
            benchmark=place[0],
            agent=place[1],
            label=label,
            answers=len(judgements),
            accepted=sum(row["correct"] is True for row in judgements),
            unjudged=sum(why.values()),
            cause=why.most_common(1)[0][0] if why else None,
            from_cache=sum(case.key in self.known for case in self.cases.values()),
            cost_usd=round(sum(costs), 9) if costs or not judgements else None,
        )

    def _opinion(self, case: Case) -> Opinion:
        record = self.cache.get(case.key)
        if record is not None:
            return Opinion(record.correct)
        return Opinion(None, self.errors.get(case.key, "not asked"))

    def _judgement(self, case: Case, opinion: Opinion) -> dict[str, Any]:
        record = self.cache.get(case.key)
        paid = (self.section.label, self._payer(case))
        mine = record is not None and (record.label, record.payer) == paid
        return {
            "benchmark": self.where.benchmark,
            "agent": self.where.agent,
            "episode_id": case.episode_id,
            "label": self.section.label,
            "case": case.key,
            "shown": case.shown,
            "reply": None if record is None else record.reply,
            "correct": opinion.correct,
            "cost_usd": None if record is None else record.cost_usd if mine else 0.0,
            "engine": None if record is None else record.engine,
            "error": opinion.error,
        }

    def _payer(self, case: Case) -> tuple[str, str, str, str]:
        return self.where.run_root, self.where.benchmark, self.where.agent, case.episode_id
