"""The levels of a rotation (``table.maintenance.rotation.rotate_keys`` says what each does)."""

from __future__ import annotations

from typing import Final, Literal

Level = Literal["kek", "wrap", "lists", "data", "all"]
LEVELS: Final[tuple[Level, ...]] = ("kek", "wrap", "lists", "data", "all")
OF_FILES: Final = ("lists", "data", "all")
