"""EHRSQL (MIMIC-III and eICU): question files and databases that the user supplies."""

from sentinel.benchmarks.ehrsql.benchmark import EhrsqlBenchmark

__all__ = ["EhrsqlBenchmark"]
