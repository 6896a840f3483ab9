"""The embedded crafting world: TextCraft's rules, recipes and goals of our own."""

from sentinel.benchmarks.craft.benchmark import CraftBenchmark

__all__ = ["CraftBenchmark"]
