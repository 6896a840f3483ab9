"""The embedded hospital: synthetic data in the EHRSQL MIMIC-III schema, questions of our own."""

from sentinel.benchmarks.clinic.benchmark import ClinicBenchmark

__all__ = ["ClinicBenchmark"]
