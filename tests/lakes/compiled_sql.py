"""SQLite catalogs of one process share the SQL that SQLAlchemy has compiled: each has an engine of its own, which would compile it anew.

A test opens ten catalogs, and the statements are those of the one before. What is kept has SQLite's dialect in its key, which an engine
makes for itself; here the key has its name.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pyiceberg.catalog.sql
from sqlalchemy import Engine
from sqlalchemy.engine import Dialect


class _Statements(dict[Any, Any]):
    """Compiled statements by SQLAlchemy's key, a tuple whose dialect is put by its name."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_named(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__(_named(key), compiled)


def _named(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(part.name if isinstance(part, Dialect) else part for part in key)


def share() -> None:
    """Let the engines that PyIceberg makes from now on share what they compile for SQLite."""
    make, statements = pyiceberg.catalog.sql.create_engine, _Statements()

    def engine(*args: Any, **options: Any) -> Engine:
        made: Engine = make(*args, **options)
        if made.dialect.name == "sqlite":
            made.update_execution_options(compiled_cache=statements)
        return made

    patch.object(pyiceberg.catalog.sql, "create_engine", engine).start()
