"""A TF–IDF scorer of one round as plain arrays: terms, document frequencies, coefficients.

Its score of one text is that of the table it was scored in, to the last bit: the same sparse row,
summed in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TextProbe:
    """`terms` in column order, `idf` and `coef` (k,) float64; failure is the positive class."""

    terms: tuple[str, ...]
    idf: Floats
    coef: Floats
    intercept: float

    @cached_property
    def _reader(self) -> tuple[Any, Any]:
        from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

        from sentinel.heads.tfidf import TOKEN

        counter = CountVectorizer(
            token_pattern=TOKEN,
            ngram_range=(1, 2),
            vocabulary={term: i for i, term in enumerate(self.terms)},
        )
        weigh = TfidfTransformer(sublinear_tf=True)
        weigh.idf_ = self.idf
        return counter, weigh

    def score(self, text: str) -> float:
        """f: probability of failure of one text through an action."""
        from scipy.special import expit

        return float(expit(self.logit(text)))

    def logit(self, text: str) -> float:
        """The logit of one text; the intercept alone where there are no terms."""
        if not self.terms:
            return self.intercept
        counter, weigh = self._reader
        found = weigh.transform(counter.transform([text])) @ self.coef.reshape(-1, 1)
        return float((np.asarray(found).ravel() + self.intercept)[0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As named arrays; terms as UTF-8, one a line (no term holds a line break)."""
        text = "\n".join(self.terms).encode("utf-8", "surrogatepass")
        return {
            "terms": np.frombuffer(text, dtype=np.uint8).copy(),
            "idf": self.idf,
            "coef": self.coef,
            "intercept": np.array([self.intercept], dtype=np.float64),
        }

    @classmethod
    def of(cls, arrays: dict[str, NDArray[Any]]) -> TextProbe:
        """Inverse of `arrays`. Raises ValueError where they do not fit one another."""
        text = arrays["terms"].tobytes().decode("utf-8", "surrogatepass")
        found = cls(
            tuple(text.split("\n")) if text else (),
            arrays["idf"],
            arrays["coef"],
            float(arrays["intercept"][0]),
        )
        if not len(found.terms) == len(found.idf) == len(found.coef):
            raise ValueError(f"{len(found.terms)} terms, {len(found.idf)} frequencies")
        return found
