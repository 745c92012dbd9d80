"""Where the repository is, and what a process that a test starts finds it by."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def python_path(*more: str | Path) -> str:
    """Return a PYTHONPATH with this package, icelock's sources, and the folders in ``more``."""
    return os.pathsep.join(map(str, (ROOT, ROOT / "src", *more)))
