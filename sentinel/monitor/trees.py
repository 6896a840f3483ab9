"""The hybrid estimator's archive, read only where it holds the types that belong in it.

skops runs no code of its own, but it builds objects by name; the names are held to a fixed list
before anything is built, the archive's own trust marks notwithstanding.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

from sentinel.errors import UserError

TREES = "sklearn.ensemble._hist_gradient_boosting"
ALLOWED = frozenset(
    {
        f"{TREES}.gradient_boosting.HistGradientBoostingClassifier",
        f"{TREES}.predictor.TreePredictor",
        f"{TREES}.binning._BinMapper",
        "sklearn._loss._loss.CyHalfBinomialLoss",
        "_loss.CyHalfBinomialLoss",
        "sklearn._loss.loss.HalfBinomialLoss",
        "sklearn._loss.link.LogitLink",
        "sklearn._loss.link.Interval",
        "sklearn.preprocessing._label.LabelEncoder",
        "numpy.ndarray",
        "numpy.dtype",
        "numpy.float64",
        "numpy.int64",
        "numpy.uint64",
        "numpy.bool",
        "numpy.random._generator.Generator",
        "builtins.str",
        "builtins.int",
        "builtins.float",
        "builtins.bool",
        "builtins.NoneType",
        "builtins.dict",
        "builtins.list",
        "builtins.tuple",
    }
)
"""Every type that gradient boosting, its loss and its bins are made of; nothing else is built."""
MEMBERS = (".json", ".npy")


def load(data: bytes) -> Any:
    """The estimator of a skops archive.

    Raises UserError for an archive that is damaged, or holds a type or member outside the list.
    """
    import skops.io

    again = "export the monitor again: sentinel calibrate"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            schema = json.loads(archive.read("schema.json"))
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise UserError(f"the estimator's archive cannot be read ({error})", again) from error
    members = [n for n in names if not n.endswith(MEMBERS)]
    foreign = sorted(types_of(schema) - ALLOWED)
    if foreign or members:
        raise UserError(
            f"the estimator's archive holds foreign content: {', '.join([*foreign, *members])}",
            again,
        )
    try:
        untrusted = skops.io.get_untrusted_types(data=data)
        model = skops.io.loads(data, trusted=[t for t in untrusted if t in ALLOWED])
    except Exception as error:
        # whatever the archive makes numpy or scikit-learn raise: it is the archive that is wrong
        raise UserError(f"the estimator's archive is damaged ({error})", again) from error
    if type(model).__name__ != "HistGradientBoostingClassifier":
        raise UserError(f"the estimator's archive holds a {type(model).__name__}", again)
    return model


def types_of(schema: Any) -> set[str]:
    """Full names of all types that a skops schema names, at any depth."""
    found: set[str] = set()
    pending = [schema]
    while pending:
        at = pending.pop()
        if isinstance(at, dict):
            if "__class__" in at:
                found.add(f"{at.get('__module__')}.{at['__class__']}")
            pending += at.values()
        elif isinstance(at, list):
            pending += at
    return found
