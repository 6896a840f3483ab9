"""Numbers that must be exact: stakes, budgets, margins, levels, targets."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction

from sentinel.errors import UserError


def decimal_text(value: str | int | float | Decimal | Fraction, name: str = "λ") -> str:
    """The shortest plain decimal of a number as its writer meant it: 0.1 is one tenth.

    Raises UserError for what is no finite number ≥ 0.

    >>> decimal_text(4.0), decimal_text("0.50"), decimal_text(10)
    ('4', '0.5', '10')
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = Decimal(value if isinstance(value, str) else str(value))
        valid = number.is_finite() and number >= 0 and float(number) < float("inf")
    except (InvalidOperation, TypeError, ValueError, OverflowError):
        valid = False
    if not valid:
        raise UserError(
            f"{name} = {value!r} is no finite decimal number ≥ 0", f"give {name} as in 0.5"
        )
    text = format(number.normalize(), "f")
    return "0" if number == 0 else text
