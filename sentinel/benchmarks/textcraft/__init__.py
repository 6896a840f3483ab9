"""TextCraft: crafting goals over the recipe folder of Minecraft 1.16.5, which the user supplies."""

from sentinel.benchmarks.textcraft.benchmark import TextcraftBenchmark

__all__ = ["TextcraftBenchmark"]
