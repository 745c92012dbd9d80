"""PyIceberg's builders of schemas, partition specs and sort orders, whose errors about a column name the one that may be meant.

Not here: what may be changed (``table.guard.rules``).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.table.update.spec import UpdateSpec

from icelock.errors import PolicyError
from icelock.metadata.schema_paths import unknown_column

_Builder = TypeVar("_Builder")
_NO_COLUMN: Final = re.compile(r"Could not find field with name (?:or id )?(.*?), case_sensitive=(?:True|False)")


def _named(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except ValueError as e:
            found = _NO_COLUMN.fullmatch(str(e))
            if found is None:
                raise
            raise PolicyError(unknown_column(found[1], self._transaction.table_metadata.schema().column_names)) from e

    return call


def _naming(kind: type[_Builder]) -> type[_Builder]:
    """Return a class that is a builder in all, but for the text of these errors."""
    methods = {
        name: _named(method)
        for each in reversed(kind.__mro__)
        for name, method in vars(each).items()
        if callable(method) and not name.startswith("_")
    }
    return type(kind.__name__, (kind,), {**methods, "__doc__": kind.__doc__, "__module__": __name__})


NamedUpdateSchema: Final = _naming(UpdateSchema)
NamedUpdateSortOrder: Final = _naming(UpdateSortOrder)
NamedUpdateSpec: Final = _naming(UpdateSpec)
