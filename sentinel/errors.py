"""Errors that a user can mend."""

from __future__ import annotations


class UserError(Exception):
    """One line: what is wrong, and the command or change that mends it. The CLI exits with 2."""

    def __init__(self, cause: str, remedy: str = "") -> None:
        self.cause = " ".join(cause.split())
        self.remedy = " ".join(remedy.split())
        super().__init__(f"{self.cause}; {self.remedy}" if self.remedy else self.cause)

    def __reduce__(self) -> tuple[type[UserError], tuple[str, str]]:
        # Ray pickles exceptions; the default would call __init__ with the joined text.
        return type(self), (self.cause, self.remedy)
