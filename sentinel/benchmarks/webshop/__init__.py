"""WebShop as a pure-Python text core over a catalogue that the user supplies."""

from sentinel.benchmarks.webshop.benchmark import WebshopBenchmark

__all__ = ["WebshopBenchmark"]
