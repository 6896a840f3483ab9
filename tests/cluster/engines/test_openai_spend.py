"""Prices, the journal of what was spent, the budget of a run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.engines import openai_spend
from cluster.engines.openai_spend import Price, Spend, SpendReader
from sentinel.engine import Stop


def test_prices() -> None:
    price = Price.of({"prompt": 2.5, "cached": 1.25, "generated": 10, "date": "2024-10-01"})
    assert price == Price(2.5, 1.25, 10.0)
    assert Price.of({"prompt": 2.0, "generated": 1.0}) == Price(2.0, 2.0, 1.0)
    assert Price.of({"prompt": 2.0, "generated": 1.0, "cached": 0.0}) == Price(2.0, 0.0, 1.0)
    assert Price.of(None) is None


def test_what_was_spent_outlives_its_process_and_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_spend, "REREAD_SECONDS", 0.0)
    first, second = Spend("a", 10.0, tmp_path), Spend("b", 10.0, tmp_path)

    async def pay(spend: Spend, cost: float | None) -> None:
        await spend.reserve(1.0)
        spend.settle(1.0, cost, "e/1")

    asyncio.run(pay(first, 2.0))
    asyncio.run(pay(second, 3.0))
    asyncio.run(pay(second, None))
    assert first.spent == second.spent == 5.0
    first.close()
    second.close()
    with next(tmp_path.glob("*.jsonl")).open("a") as file:
        file.write('nonsense\n[]\n{"agent": "a", "usd": 7')  # cut by the end of its process
    reader = SpendReader(tmp_path)
    assert reader.total() == 5.0
    assert reader.total() == 5.0, "each line counts once"
    assert reader.by_agent == {"a": 2.0, "b": 3.0}
    assert Spend("a", 10.0, tmp_path).spent == 5.0
    assert SpendReader(tmp_path / "none").total() == 0.0


def test_a_budget_without_room_for_the_first_request() -> None:
    with pytest.raises(Stop, match=r"\$0\.50"):
        asyncio.run(Spend("a", 0.5).reserve(1.0))


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), max_size=40),
    st.floats(0.1, 20.0),
)
def test_a_budget_is_kept_where_no_reply_exceeds_its_ceiling(
    requests: list[tuple[float, float]], limit: float
) -> None:
    async def run() -> Spend:
        spend = Spend("a", limit)

        async def one(ceiling: float, share: float) -> None:
            await spend.reserve(ceiling)
            await asyncio.sleep(0)
            spend.settle(ceiling, ceiling * share, "e")

        tasks = [one(*r) for r in requests]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(r is None or isinstance(r, Stop) for r in results), "nobody waits for ever"
        return spend

    assert asyncio.run(run()).spent <= limit + 1e-9
