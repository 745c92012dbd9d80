"""A procedure, and a call of one. Not here: the procedures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from icelock.errors import PolicyError
from icelock.spark.settings.catalogs import table_of
from icelock.spark.settings.options import TableName
from icelock.spark.statements.asked import StatementSession
from icelock.table.table import Table

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMESPACE_AND_TABLE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call: the arguments by their names, null where none was given."""

    session: StatementSession
    catalog: str
    procedure: str
    arguments: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Return an argument."""
        return self.arguments[name]

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the parts of an argument that is a name in SQL, such as ``db.`my table```."""
        text: str = self.required(name)
        if not text.strip():
            raise PolicyError(f"{self.procedure}: {name} is an empty name")
        parser: Any = self.session.spark._jsparkSession.sessionState().sqlParser()
        found = parser.parseMultipartIdentifier(text)
        return tuple(found.apply(number) for number in range(found.size()))

    def required(self, name: str) -> Any:
        """Return an argument; null is a PolicyError."""
        if self.arguments[name] is None:
            raise PolicyError(f"{self.procedure}: {name} is null; it must be given")
        return self.arguments[name]

    @property
    def name(self) -> TableName:
        """The table, with or without its catalog; without a namespace it is in the session's, if that is of this catalog."""
        return self.name_of("table")

    def name_of(self, argument: str) -> TableName:
        """Return the table of this catalog that an argument names; see ``name``."""
        parts = self.parts(argument)
        if len(parts) > _NAMESPACE_AND_TABLE and parts[0] == self.catalog:
            parts = parts[1:]
        if len(parts) < _NAMESPACE_AND_TABLE:
            sessions = self.session.spark.catalog
            if sessions.currentCatalog() != self.catalog:
                raise PolicyError(f"{self.procedure}: {argument} is {self[argument]!r}, without a namespace: name it namespace.table")
            parts = (*sessions.currentDatabase().split("."), *parts)
        return TableName(catalog=self.catalog, identifier=parts)

    @property
    def table(self) -> Table:
        """The table, loaded anew."""
        return table_of(self.session.catalog(self.catalog), self.name)

    def moment(self, name: str) -> datetime | None:
        """Return an argument that is a timestamp."""
        micros = self.arguments[name]
        return None if micros is None else _EPOCH + timedelta(microseconds=micros)

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Refuse arguments that Java has and icelock has not, if they are given; ``reasons`` says why, by name."""
        for name, reason in reasons.items():
            if self.arguments[name] is not None:
                raise PolicyError(f"{self.procedure}: {name} is not supported: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """A procedure: ``parameters`` and ``result`` are columns in Spark's DDL; parameters in ``optional`` come last, and may be left out.

    ``changes``: whether a table that is cached has to be read again.
    """

    description: str
    parameters: Mapping[str, str]
    optional: Mapping[str, str]
    result: str
    run: Callable[[Call], Sequence[Sequence[Any]]]
    changes: bool = True
