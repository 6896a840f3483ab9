"""BM25 as Lucene computes it, written from its formulas, to measure another search against.

English analysis (lower case, possessive `'s`, 33 stop words, Porter), idf = ln(1 + (N − df + ½) /
(df + ½)), and a document's length kept in one byte (`SmallFloat.intToByte4`: four significant bits
above 24). Words are runs of letters and digits, which is the Unicode segmentation but for marks
inside a word.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

STOP = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it"}
    | {"no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these"}
    | {"they", "this", "to", "was", "will", "with"}
)


def length_byte(n: int) -> int:
    """The length that Lucene keeps of n: exact up to 39, then cut to four significant bits."""
    free = 24
    if n < free:
        return n
    bits = n - free
    shift = max(bits.bit_length() - 4, 0)
    return free + ((bits >> shift) << shift)


class Lucene:
    """An index over texts."""

    def __init__(self, texts: Sequence[str], k1: float = 0.9, b: float = 0.4) -> None:
        import Stemmer

        self._stem = Stemmer.Stemmer("porter").stemWord
        found = [self._tokens(t) for t in texts]
        self._counts = [Counter(t) for t in found]
        mean = sum(map(len, found)) / len(found)
        self._norm = [k1 * (1 - b + b * length_byte(len(t)) / mean) for t in found]
        self._where: dict[str, list[int]] = {}
        for i, counts in enumerate(self._counts):
            for token in counts:
                self._where.setdefault(token, []).append(i)

    def _tokens(self, text: str) -> list[str]:
        words = re.findall(r"\w+(?:['’]\w+)*", text.lower())
        words = [re.sub(r"['’]s$", "", w) for w in words]
        return [self._stem(w) for w in words if w not in STOP]

    def top(self, query: str, n: int) -> list[int]:
        """Numbers of the best texts, ties in their order."""
        scores: dict[int, float] = {}
        for token, times in Counter(self._tokens(query)).items():
            at = self._where.get(token, [])
            idf = math.log(1 + (len(self._norm) - len(at) + 0.5) / (len(at) + 0.5))
            for i in at:
                tf = self._counts[i][token]
                scores[i] = scores.get(i, 0.0) + times * idf * tf / (tf + self._norm[i])
        return sorted(scores, key=lambda i: (-scores[i], i))[:n]
