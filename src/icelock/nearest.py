"""``hint``: what a message says of a name that is not one of those that there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def hint(name: str, known: Iterable[str], *, otherwise: str = "known") -> str:
    """Return ``did you mean 'x'?`` for a name that is near one of ``known``, else all of these after the word ``otherwise``."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1) or [one for one in names if one.lower() == name.lower()]
    return f"did you mean {near[0]!r}?" if near else f"{otherwise}: {', '.join(names) or 'none'}"
