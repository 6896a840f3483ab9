"""Benchmarks by kind: a mapping from a config becomes an object that implements Benchmark."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from sentinel.benchmarks.base import Benchmark
from sentinel.errors import UserError

KINDS: Mapping[str, str] = {
    "alfworld": "sentinel.benchmarks.alfworld:AlfworldBenchmark",
    "clinic": "sentinel.benchmarks.clinic:ClinicBenchmark",
    "craft": "sentinel.benchmarks.craft:CraftBenchmark",
    "ehrsql": "sentinel.benchmarks.ehrsql:EhrsqlBenchmark",
    "ehrsql2024": "sentinel.benchmarks.ehrsql.shared_task:Ehrsql2024Benchmark",
    "textcraft": "sentinel.benchmarks.textcraft:TextcraftBenchmark",
    "webshop": "sentinel.benchmarks.webshop:WebshopBenchmark",
}
"""Kind → where its class is. A `kind` with a colon names any class: `my.module:Class`."""


def load(mapping: Mapping[str, Any]) -> Benchmark:
    """The benchmark of a config: `kind` (else the name) picks the class, the rest are arguments.

    Raises UserError for an unknown kind, a class that cannot be imported, or a setting that it does
    not take; the message lists the valid ones.
    """
    settings = dict(mapping)
    kind = str(settings.pop("kind", None) or settings.get("name", ""))
    target = KINDS.get(kind, kind)
    module_name, colon, class_name = target.partition(":")
    if not colon:
        raise UserError(
            f"unknown benchmark kind {kind!r}",
            f"use one of: {', '.join(sorted(KINDS))}, or module:Class of your own",
        )
    try:
        factory = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"benchmark kind {kind}: {error}", "check the spelling and that it can be imported"
        ) from error
    _check(kind, factory, settings)
    benchmark: Benchmark = factory(**settings)
    return benchmark


def _check(kind: str, factory: Any, settings: Mapping[str, Any]) -> None:
    parameters = inspect.signature(factory).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    names = [p.name for p in parameters]
    unknown = sorted(settings.keys() - set(names))
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in settings]
    if unknown or missing:
        faults = [f"unknown {', '.join(unknown)}"] if unknown else []
        faults += [f"missing {', '.join(missing)}"] if missing else []
        raise UserError(
            f"benchmark {settings.get('name', kind)}: settings {'; '.join(faults)}",
            f"kind {kind} takes: {', '.join(names)}",
        )
