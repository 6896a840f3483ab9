"""TF–IDF with a logistic regression: the cheap, honest baseline of the encoder heads.

Words, numbers and single marks, alone and in pairs; same targets, same folds, same tables.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sentinel.errors import UserError
from sentinel.heads.config import HeadConfig

TOKEN = r"\w+|[^\w\s]"
FORMAT = 1


@dataclass
class TfidfHead:
    """A fitted baseline: vocabulary, inverse document frequencies, one weight per term."""

    vocabulary: dict[str, int]
    idf: np.ndarray
    coef: np.ndarray
    intercept: float

    def logits(self, texts: Sequence[str]) -> np.ndarray:
        """(n,) float64 logits; equal texts are read once."""
        if not len(texts):
            return np.zeros(0)
        distinct, index = np.unique(np.array(list(texts), dtype=object), return_inverse=True)
        vectorizer = _vectorizer(vocabulary=self.vocabulary)
        vectorizer.idf_ = self.idf
        matrix = vectorizer.transform(list(distinct))
        return (matrix @ self.coef + self.intercept)[index.ravel()]

    def save(self, folder: Path, meta: dict[str, Any]) -> None:
        """`model.safetensors` and `head.json`."""
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        arrays = {
            "idf": self.idf,
            "coef": self.coef,
            "intercept": np.array([self.intercept], dtype=np.float64),
        }
        save_file(arrays, folder / "model.safetensors")
        content = {"format": FORMAT, "kind": "tfidf", "vocabulary": self.vocabulary, "meta": meta}
        text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
        (folder / "head.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> tuple[TfidfHead, dict[str, Any]]:
        """Inverse of `save`. Raises UserError for files that are missing or damaged."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            content = json.loads((folder / "head.json").read_text(encoding="utf-8"))
            arrays = load_file(folder / "model.safetensors")
            head = cls(
                content["vocabulary"],
                arrays["idf"],
                arrays["coef"],
                float(arrays["intercept"][0]),
            )
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise UserError(
                f"head {folder} cannot be read: {error}", "run: sentinel heads"
            ) from error
        return head, content["meta"]


def fit_tfidf(
    texts: Sequence[str], targets: np.ndarray, config: HeadConfig, seed: int
) -> TfidfHead:
    """Fit the baseline on n texts and their (n,) targets in {0, 1}, both present."""
    vectorizer = vectorizer_of(len(texts))
    matrix = vectorizer.fit_transform(list(texts))
    model = classifier(config, seed)
    model.fit(matrix, np.asarray(targets) > 0.5)
    vocabulary = {term: int(at) for term, at in vectorizer.vocabulary_.items()}
    return TfidfHead(
        vocabulary,
        np.asarray(vectorizer.idf_, dtype=np.float64),
        np.asarray(model.coef_[0], dtype=np.float64),
        float(model.intercept_[0]),
    )


def vectorizer_of(n: int) -> Any:
    """The vectorizer that is fitted to n texts; it knows no label."""
    return _vectorizer(min_df=2 if n >= 50 else 1, max_features=50_000)


def classifier(config: HeadConfig, seed: int) -> Any:
    """The logistic regression on its terms."""
    from sklearn.linear_model import LogisticRegression

    balanced = "balanced" if config.class_weights == "balanced" else None
    return LogisticRegression(C=4.0, max_iter=500, class_weight=balanced, random_state=seed)


def _vectorizer(**settings: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        token_pattern=TOKEN, ngram_range=(1, 2), sublinear_tf=True, dtype=np.float64, **settings
    )
