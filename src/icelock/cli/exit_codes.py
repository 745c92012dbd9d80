"""``Code``: how a command ends, the same for all of them (docs/reference/cli.md lists it)."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class Code(IntEnum):
    """An exit code; the text of each is what the page says of it."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """Make a member of a number and its meaning."""
        made = int.__new__(cls, value)
        made._value_ = value
        made.meaning = meaning
        return made

    DONE = (0, "done, or nothing to do")
    FOUND = (1, "done, and something was found, or is left: findings of an audit, a right that is missing, files that could not be deleted")
    COULD_NOT = (2, "could not: an error, or something that could not be looked at. Nothing else was found")
    USAGE = (64, "wrong usage: an unknown command or option, a value that an option does not take. Nothing was tried")
    INTERRUPTED = (130, "interrupted (Ctrl-C)")
    CLOSED = (141, "who read the output has closed it, such as `head`")
