"""A mistake: code or a command that a user writes, and what the message must say.

Not here: where it runs (``place``), the page (``page``).
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Final

from tools.wrap import wrap

_LONGEST: Final = 700
_LINES: Final = 3
_WIDTH: Final = textwrap.TextWrapper(width=120, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
# What Python raises where nobody looked, and what says nothing to a user.
_UNSEEN: Final = ("AttributeError", "KeyError", "IndexError", "AssertionError", "TypeError", "Py4JJavaError", "Traceback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One mistake.

    Args:
        title: what the user did; the heading on the page.
        code: Python, or a command line that begins with ``icelock``.
        why: the reason.
        remedy: what to do.
        says: what the message must have in it: the thing, the candidates, the remedy.
        before: code that runs first and is not shown.
        after: code that runs last, with the names that ``before`` made, and is not shown.
        without: packages that are not installed.
        configured: whether PyIceberg's configuration has the catalog ``lake``, as it has for commands.
        most: lines that the message may have; more than ``_LINES`` only where Spark adds some.
    """

    title: str
    code: str
    why: str
    remedy: str
    says: tuple[str, ...]
    before: str = ""
    after: str = ""
    without: tuple[str, ...] = ()
    most: int = _LINES
    configured: bool = False

    @property
    def is_command(self) -> bool:
        """Whether it is a command line."""
        return self.code.startswith("icelock ")

    def faults(self, message: str) -> list[str]:
        """Return what a stranger would miss in the message."""
        found = [f"does not say {text!r}" for text in self.says if text not in message]
        if len(message) > _LONGEST:
            found.append(f"has {len(message)} letters")
        if message.count("\n") >= self.most:
            found.append(f"has {message.count(chr(10)) + 1} lines")
        kind = re.split(r"[:\s]", message, maxsplit=1)[0]
        if kind in _UNSEEN or "Traceback (most recent call last)" in message:
            found.append(f"is a {kind}")
        return found

    def section(self, message: str) -> str:
        """Return the mistake as a section of the page, whose code blocks nobody runs as those of other pages."""
        kind, code = ("shell", f"$ {self.code}") if self.is_command else ("py", self.code)
        lines = [part for line in message.splitlines() for part in _WIDTH.wrap(line) or [""]]
        shown = "\n".join(lines)
        return wrap(f"### {self.title}\n\n```{kind}\n{code}\n```\n\n```text\n{shown}\n```\n\n{self.why} **{self.remedy}**\n")
