"""What a policy without a clue may do when crafting: the listed commands and what they need."""

from __future__ import annotations

from collections.abc import Sequence

from sentinel.benchmarks.craft.rules import Amount, RecipeBook, parse


def listed_moves(book: RecipeBook, commands: Sequence[str]) -> list[str]:
    """Each listed command with items for tags, and a `get` of each amount that can be got."""
    gets: set[str] = set()
    crafts: list[str] = []
    for text in commands:
        command = parse(text)
        if command is None or command.out is None:
            continue
        parts = [Amount(p.count, book.carriers(p.name)[0]) for p in command.parts]
        crafts.append(f"craft {command.out} using {', '.join(map(str, parts))}")
        gets |= {f"get {p}" for p in parts if p.name in book.items and p.name not in book.makes}
    return [*sorted(gets), *crafts]
