"""ALFWorld: household games in text, one process per game; needs the extra `alfworld`."""

from sentinel.benchmarks.alfworld.benchmark import AlfworldBenchmark

__all__ = ["AlfworldBenchmark"]
