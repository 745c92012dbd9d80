"""A catalog for users' tests: private to one object, and removed with it.

It is the SQL catalog on a sqlite file in a temporary folder, so threads may share it, and tests run the code that runs elsewhere. Tables
are there as well unless ``warehouse`` says otherwise.

Not here: the SQL catalog (``catalog.sql.catalog``).
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from typing import ClassVar, Final

from sqlalchemy import Engine

from icelock.catalog.sql.catalog import SqlCatalog

_PREFIX: Final = "icelock-in-memory-"


class InMemoryCatalog(SqlCatalog):
    """``type=in-memory``: a catalog that nobody else sees. ``close``, or the end of the object or the process, removes its folder."""

    one_process: ClassVar[bool] = True

    def __init__(self, name: str, **properties: str) -> None:
        folder = tempfile.mkdtemp(prefix=_PREFIX)
        try:
            super().__init__(name, **{"warehouse": f"file://{folder}/warehouse", **properties, "uri": f"sqlite:///{folder}/catalog.db"})
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._end = weakref.finalize(self, _remove, self.engine, folder)

    def close(self) -> None:
        """Remove everything."""
        super().close()
        self._end()


def _remove(engine: Engine, folder: str) -> None:
    engine.dispose()
    shutil.rmtree(folder, ignore_errors=True)
