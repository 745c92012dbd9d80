"""A behaviour that Iceberg's Spark suites hold, as statements that both engines run.

Statements have names in braces: ``{t}`` the case's table, ``{name}`` and ``{id}`` its name without catalog, bare and with its namespace,
``{db}`` the namespace with its catalog, ``{cat}`` the catalog, ``{ns}`` a namespace that is the case's alone, ``{place}`` a folder of its
own; ``{s1}``, ``{s2}`` .. the table's snapshots from the oldest, ``{ms1}`` .. their times.

What Iceberg has statements of its own for, and icelock procedures, is said as ``+branch NAME``, ``+tag NAME``, ``+field TRANSFORM``;
``+orphan PATH`` leaves an old file of nobody's in the table's folder.

Not here: the cases (the other modules), running them (``sql_run``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

COPY: Final = "copy-on-write"
DELTA: Final = "merge-on-read"
BOTH: Final = (COPY, DELTA)
ALL: Final = "select * from {t}"
# In place of a query: facts of the table's metadata.
SCHEMA: Final = "+schema"
SPEC: Final = "+spec"
REFS: Final = "+refs"
PROPERTIES: Final = "+properties"
LOCATION: Final = "+location"
ORDER: Final = "+order"
IDENTIFIERS: Final = "+identifiers"
# What an outcome consists of.
STATEMENTS: Final = "statements"
ROWS: Final = "rows"
SNAPSHOTS: Final = "snapshots"


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A write by ``writeTo`` instead of a statement: ``method`` of the writer of ``query``'s rows, an overwrite's ``condition``."""

    query: str
    method: str
    condition: str = ""
    by: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


Statement = str | Frame


@dataclass(frozen=True)
class Differs:
    """The engines differ in these parts of the outcome, for this reason."""

    why: str
    parts: tuple[str, ...] = (STATEMENTS,)


@dataclass(frozen=True)
class Case:
    """``of`` is Iceberg's test. After ``given`` each of ``when`` runs, its rows or its error count; then each of ``then``.

    ``instead`` is what icelock is given in place of ``when``. ``modes``: the case is run once for each mode of row changes, and may differ
    in one of them.
    """

    title: str
    of: str
    given: tuple[Statement, ...]
    when: tuple[Statement, ...] | Statement = ()
    then: tuple[str, ...] | str = ALL
    instead: tuple[Statement, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    modes: tuple[str, ...] = ()
    mode: str = COPY
    differs: Differs | Mapping[str, Differs] | None = None

    @property
    def difference(self) -> Differs | None:
        """How the engines differ in this mode."""
        return self.differs.get(self.mode) if isinstance(self.differs, Mapping) else self.differs

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What is under test."""
        return self.when if isinstance(self.when, tuple) else (self.when,)

    @property
    def looks(self) -> tuple[str, ...]:
        """What is looked at afterwards."""
        return self.then if isinstance(self.then, tuple) else (self.then,)


@dataclass(frozen=True)
class Suite:
    """``name`` is that of Iceberg's suite."""

    name: str
    cases: tuple[Case, ...]

    def expanded(self) -> Iterable[Case]:
        """Return the cases, one for each mode."""
        for case in self.cases:
            if not case.modes:
                yield case
            for mode in case.modes:
                yield replace(case, title=f"{case.title}, {mode}" if len(case.modes) > 1 else case.title, mode=mode)


def table(columns: str, *rows: str, by: str = "", properties: str = "", name: str = "{t}", files: int = 1) -> tuple[str, ...]:
    """Return the statements that make a table with rows; ``files``: the rows are dealt out to so many inserts."""
    listed = ", ".join((*_MODES, *([properties] if properties else [])))
    clauses = f"{f'partitioned by ({by}) ' if by else ''}tblproperties ({listed})"
    if "not null" in columns or not rows or files > 1:
        return (
            f"create table {name} ({columns}) {clauses}",
            *(f"insert into {name} values {', '.join(rows[i::files])}" for i in range(files if rows else 0)),
        )
    pairs = [_COLUMN.findall(column)[0] for column in _split(columns)]
    picked = ", ".join(f"cast({column} as {kind}) as {column}" for column, kind in pairs)
    return (f"create table {name} {clauses} as select {picked} from {values(', '.join(c for c, _ in pairs), *rows)}",)


def values(columns: str, *rows: str) -> str:
    """Return rows as something to select from."""
    return f"(values {', '.join(rows)} as v({columns}))"


_MODES: Final = ("'write.delete.mode' = '{mode}'", "'write.update.mode' = '{mode}'", "'write.merge.mode' = '{mode}'")

_COLUMN: Final = re.compile(r"(`(?:[^`]|``)+`|\w+) (.*)")


def _split(columns: str) -> list[str]:
    found, depth = [""], 0
    for character in columns:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return [column.strip() for column in found]
