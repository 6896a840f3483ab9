"""The shop's search: BM25 over the products' texts, by the `bm25s` library."""

from __future__ import annotations

from typing import Any

from sentinel.benchmarks.webshop.catalogue import Catalogue
from sentinel.errors import UserError

K1, B = 0.9, 0.4
"""BM25's parameters: those of the search engine that the original uses."""
HITS = 50


class Search:
    """An index over a catalogue; read-only, shared by all episodes of a process.

    Ties are decided by the order of the catalogue. Raises UserError where the libraries of the
    extra `webshop` are missing.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        try:
            import bm25s
            import Stemmer
        except ImportError as error:
            raise UserError(
                f"webshop needs {error.name}", "pip install 'sentinel-suite[webshop]'"
            ) from error
        self._tokenize = bm25s.tokenize
        self._stemmer = Stemmer.Stemmer("porter")
        self._asins = [p.asin for p in catalogue.products]
        self._index: Any = bm25s.BM25(k1=K1, b=B, method="lucene")
        corpus = [p.contents for p in catalogue.products]
        self._index.index(self._tokens(corpus), show_progress=False)

    def __call__(self, keywords: str) -> list[str]:
        """ASINs, best first; only products that hold a word of the query."""
        tokens = self._tokens([keywords], False)[0]
        scores = self._index.get_scores(tokens)
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:HITS]
        return [self._asins[i] for i in order if scores[i] > 0]

    def _tokens(self, texts: list[str], ids: bool = True) -> Any:
        return self._tokenize(
            texts, stopwords="en", stemmer=self._stemmer, show_progress=False, return_ids=ids
        )
