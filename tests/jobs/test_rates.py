"""What a stage's rate holds for, by the config."""

from __future__ import annotations

import pytest

from jobs import rates
from jobs.config import RunConfig

RAW = {
    "name": "small",
    "benchmarks": [{"name": "w"}],
    "agents": [{"name": "a", "engine": "transformers", "model": "m"}],
}
NANO = "nano 64×2"


@pytest.mark.parametrize(
    ("settings", "refits"),
    [
        ({}, "tfidf"),
        ({"audit": {"loop": "off"}}, "no refits"),
        ({"audit": {"loop": "heads"}}, NANO),
        ({"audit": {"loop": "heads"}, "heads": {"kind": "tfidf"}}, "tfidf"),
        ({"audit": {"seeds": 3}}, f"tfidf, 3 seeds of {NANO}"),
        ({"audit": {"seeds": 3}, "heads": {"kind": "tfidf"}}, "tfidf"),
    ],
)
def test_the_refits_of_an_audit_are_named(settings, refits):
    config = RunConfig.from_mapping({**RAW, **settings})
    size = rates.size(config, agents=1, episodes=10, turns=30.0, tokens=1e4)
    assert size.refits == refits
