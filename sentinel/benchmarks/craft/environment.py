"""Crafting as an Environment: an action is one command, an observation is what became of it."""

from __future__ import annotations

from types import MappingProxyType

from sentinel.agent.react import Action
from sentinel.benchmarks.base import Step
from sentinel.benchmarks.craft.moves import listed_moves
from sentinel.benchmarks.craft.rules import Inventory, RecipeBook, apply

NOTHING: Inventory = MappingProxyType({})


class CraftEnvironment:
    """One goal over a shared, immutable recipe book; an episode owns nothing but its inventory.

    `success` is the environment's own verdict, given with every step: True once `count` of the goal
    have been crafted in this episode, False before. Success ends the episode; the runner owns the
    cap. A command that cannot be carried out changes nothing and is answered by an error.
    """

    def __init__(self, book: RecipeBook, goal: str, count: int, text: str) -> None:
        self._book, self._goal, self._count, self._text = book, goal, count, text
        self.inventory: Inventory = NOTHING
        self.made = 0

    async def reset(self) -> str:
        """Start with empty hands; the goal and the listed commands."""
        self.inventory, self.made = NOTHING, 0
        return self._text

    async def step(self, action: Action) -> Step:
        """Carry out one command."""
        if action.kind != "act":
            raise ValueError(f"the environment was given a {action.kind} turn")
        outcome = apply(self._book, self.inventory, action.text)
        self.inventory = outcome.inventory
        if outcome.crafted is not None and outcome.crafted.name == self._goal:
            self.made += outcome.crafted.count
        success = self.made >= self._count
        return Step(
            observation=outcome.text,
            status="error" if outcome.error else "ok",
            done=success,
            success=success,
        )

    def moves(self) -> list[str]:
        """Commands that a policy without a clue may choose from: the listed ones."""
        lines = self._text.split("\n")
        return listed_moves(self._book, [line for line in lines if line.startswith("craft ")])

    def verdict(self) -> bool:
        """Whether the goal is reached, also of an episode that never made a well-formed move."""
        return self.made >= self._count

    async def close(self) -> None:
        """Nothing is held outside this object."""
