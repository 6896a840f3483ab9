"""The two published sets of rules, and what differs between them.

- `adapt`: the original TextCraft (Prasad et al., "ADaPT: As-Needed Decomposition and Planning with
  Language Models", 2023; repository archiki/ADaPT, `TextCraft/env.py`). Goals are the items of
  depth 2 and more, the deepest first. An episode there has 39 calls, and ends before that where
  eight in a row are of no use.
- `agentgym`: the variant that later suites serve (Xi et al., "AgentGym", 2024; repository
  WooooDyy/AgentGym, `agentenv-textcraft`). Goals are all items that a recipe makes (depth 1 and
  more), the shallowest first. A `get` of the goal would count as well, which no goal allows.

Recipes, commands, answers and the listing of at most ten recipes that are of no use are the same in
both. Both leave the number before the crafted item unchecked. The abort-cascade paper lets an
episode have 20 rounds; that cap is the runner's here, under either preset.

Not as published, on purpose: the recipe table never grows (there it does at every reset, until it
accepts wrong recipes), goals do not follow the order of the directory, listings do not follow the
hash seed, the inventory is told in alphabetical order, case and spaces of a command do not matter,
a number in a command is 1 to 999, and nothing may follow a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sentinel.benchmarks.craft.rules import Words

WORDS = Words(
    unknown="Could not execute {text}",
    not_gettable="Could not find {name}",
    short="Could not find enough items to craft minecraft:{id}",
    no_recipe="Could not find a valid recipe for minecraft:{id}",
    got="Got {count} {name}",
    crafted="Crafted {count} minecraft:{id}",
)
"""The published answers."""
MAX_DISTRACTORS = 10


@dataclass(frozen=True, slots=True)
class Preset:
    """Which goals there are, and in which order."""

    name: str
    min_depth: int
    deepest_first: bool


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {p.name: p for p in (Preset("adapt", 2, True), Preset("agentgym", 1, False))}
)
