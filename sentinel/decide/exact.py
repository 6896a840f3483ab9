"""Numbers that must be exact: stakes λ and the bar that Chow's rule makes of them."""

from __future__ import annotations

from fractions import Fraction

from sentinel.exact import decimal_text

__all__ = ["chow_threshold", "decimal_text", "fraction"]


def fraction(text: str) -> Fraction:
    """The exact value of a decimal text."""
    return Fraction(text)


def chow_threshold(lam: str) -> float:
    """τ = λ/(1+λ), correctly rounded to float64.

    An isotonic value k/n is correctly rounded too, so that k/n = τ stays an equality in float64.

    >>> chow_threshold("4") == 4 / 5
    True
    """
    exact = Fraction(lam)
    return float(exact / (1 + exact))
