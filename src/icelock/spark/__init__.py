"""PySpark on encrypted tables: ``register`` a session, then ``read``, ``sql``, ``write_to``, ``delete``, ``upsert`` ...

A function's module is imported on first use: tasks unpickle classes of this package, which takes no catalog and no key service.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from icelock.spark.change_rows import add_files, delete, upsert
    from icelock.spark.maintain_tables import audit, compact, convert, optimize, rewrite_deletes, rotate
    from icelock.spark.merge_rows import merge
    from icelock.spark.read_table import read
    from icelock.spark.session import register
    from icelock.spark.sql_tables import attach, sql
    from icelock.spark.table_writer import write_to
    from icelock.table.change_result import ChangeResult

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "icelock.spark needs PySpark, which is not installed: add icelock's extra, in a clone by pip install '.[spark]'", name="pyspark"
    )

__all__ = [
    "ChangeResult",
    "add_files",
    "attach",
    "audit",
    "compact",
    "convert",
    "delete",
    "merge",
    "optimize",
    "read",
    "register",
    "rewrite_deletes",
    "rotate",
    "sql",
    "upsert",
    "write_to",
]

# No module of this package may have the name of a function: importing the module would replace the function.
_MODULES: Final = {
    "ChangeResult": "icelock.table.change_result",
    "add_files": ".change_rows",
    "attach": ".sql_tables",
    "audit": ".maintain_tables",
    "compact": ".maintain_tables",
    "convert": ".maintain_tables",
    "delete": ".change_rows",
    "merge": ".merge_rows",
    "optimize": ".maintain_tables",
    "read": ".read_table",
    "register": ".session",
    "rewrite_deletes": ".maintain_tables",
    "rotate": ".maintain_tables",
    "sql": ".sql_tables",
    "upsert": ".change_rows",
    "write_to": ".table_writer",
}


if not TYPE_CHECKING:  # for type checkers, a module with this function has every name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'icelock.spark' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_MODULES[name], __name__), name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
