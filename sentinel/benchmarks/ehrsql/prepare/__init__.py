"""MIMIC-III CSVs → the 17-table SQLite of EHRSQL, by the rules of the data set's authors."""

from sentinel.benchmarks.ehrsql.prepare.build import build
from sentinel.benchmarks.ehrsql.prepare.rules import PUBLISHED, RELAXED, Rules

__all__ = ["PUBLISHED", "RELAXED", "Rules", "build"]
