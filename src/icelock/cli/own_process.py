"""What the command spares where it has a process to itself: two thirds of a short command's CPU are imports.

Not here: commands that run in a caller's process (``main`` with arguments), whose collector and pandas are the caller's.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final, Literal

# Objects between two looks for cycles. Of Python's 700 there are ten looks at all objects in the imports of one command, for nothing.
_OBJECTS: Final = 100_000
_OURS: list[Literal[True]] = []


def begin() -> None:
    """Note that this process is the command's own."""
    _OURS.append(True)
    gc.set_threshold(_OBJECTS)


def end() -> None:
    """Let Python end without a look for cycles in all that was imported, if the process is our own: 0.3 s of CPU."""
    if _OURS:
        gc.freeze()


def import_arrow() -> None:
    """Import PyArrow's data sets, in a process of our own without pandas, which they would import to ask whether a constant is of it.

    No command hands Arrow a frame, or takes one. Whoever imports pandas later, such as a KMS client of the user's, has it.
    """
    if not _OURS or "pyarrow.dataset" in sys.modules or "pandas" in sys.modules:
        return
    without = _Without("pandas")
    sys.meta_path.insert(0, without)
    try:
        importlib.import_module("pyarrow.dataset")
    finally:
        sys.meta_path.remove(without)


class _Without(MetaPathFinder):
    """Lets a library look as if it were not installed."""

    def __init__(self, library: str) -> None:
        self._library = library

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raise for the library; of others it knows nothing."""
        del path, target
        if fullname == self._library:
            raise ModuleNotFoundError(f"{fullname} is not imported here", name=fullname)
