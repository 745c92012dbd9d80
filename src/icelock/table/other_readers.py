"""Methods of PyIceberg's tables that would hand encrypted files to a reader without keys: refused."""

from __future__ import annotations

from typing import Any, NoReturn

from icelock.errors import PolicyError


class NoOtherReaders:
    """A table whose files only icelock reads."""

    def to_daft(self) -> NoReturn:
        """Refused: Daft's own reader has no keys."""
        self._refuse("Daft's own reader")

    def to_bodo(self) -> NoReturn:
        """Refused: Bodo's own reader has no keys."""
        self._refuse("Bodo's own reader")

    def __datafusion_table_provider__(self, session: Any | None = None) -> NoReturn:
        del session
        self._refuse("DataFusion's own reader")

    def _refuse(self, what: str) -> NoReturn:
        name = ".".join(self.name())  # type: ignore[attr-defined]  # PyIceberg's table
        raise PolicyError(f"table {name}: {what} cannot decrypt it; use scan(...).to_arrow() and pass the Arrow data on")
