"""Made prefixes with lengths like those of text-to-SQL episodes: most are short, a few very long.

Agents differ in how many turns they take and in what they see; the questions, and so their
snapshots at t = 0, are the same for all.
"""

from __future__ import annotations

import numpy as np

from sentinel.episodes import Turn, render

TURNS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 8)
"""Drawn from alike: 2 to 9 snapshots per episode, 4.5 on average."""
TEXT = (
    "select count distinct from where patients admissions lab_events prescriptions diagnoses "
    "hadm_id subject_id charttime value age > = ( ) , ' . the number of needs a join on "
    "then look at what is in this table for sodium aspirin 12 4021 2105-03-07 null"
)
WORDS = TEXT.split()


def questions(n: int, seed: int = 0) -> list[str]:
    """Distinct questions of 12 to 30 words."""
    rng = np.random.default_rng(seed)
    return [f"q{i} {_words(rng, int(rng.integers(12, 31)))}?" for i in range(n)]


def prefixes(asked: list[str], agent: int, seed: int = 0) -> list[str]:
    """All snapshots of one agent's episodes, in table order: by episode, then by t."""
    rng = np.random.default_rng((seed, agent))
    found = []
    for question in asked:
        turns = [_turn(rng, number + 1) for number in range(int(rng.choice(TURNS)))]
        found += [render(question, turns, t) for t in range(len(turns) + 1)]
    return found


def _turn(rng: np.random.Generator, number: int) -> Turn:
    rows = int(min(400, rng.lognormal(3.0, 1.2)))  # a table's sample, at times with wide cells
    return Turn(
        "bench",
        "made",
        "e",
        number,
        kind="query",
        thought=_words(rng, int(rng.integers(10, 40))),
        action=_words(rng, int(rng.integers(10, 50))),
        rendered=_words(rng, 3 + rows),
    )


def _words(rng: np.random.Generator, n: int) -> str:
    return " ".join(rng.choice(WORDS, n))
