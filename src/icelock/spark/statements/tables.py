"""Tables as Spark's analyzer knows them: by a name, which may end in a branch, a tag or a metadata table, and as of a version or a time.

A loaded table stays at the snapshot that it had when Spark resolved its name, as the table of ``icelock.spark.read`` does.

Not here: their rows' way to Spark (``read_table``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, TruncateTransform

from icelock.errors import PolicyError
from icelock.metadata.metadata_columns import DELETED, FILE, LAST_UPDATED, POS, ROW_ID, SPEC_ID, partition_column
from icelock.metadata.schema_paths import names_to
from icelock.properties import is_number
from icelock.spark.columns.types import quoted, spark_schema, spark_type
from icelock.spark.read_table import read_loaded
from icelock.spark.sealed.seen import Seen
from icelock.spark.settings.catalogs import any_table_of, scan_of
from icelock.spark.settings.options import AS_OF_TIMESTAMP, BRANCH, SNAPSHOT_ID, TABLE, TAG, ReadOptions, TableName
from icelock.spark.settings.options import CHANGES as CHANGELOG
from icelock.spark.statements.asked import Answer, Asked, StatementSession
from icelock.spark.statements.changelog_table import load_changes
from icelock.spark.statements.changes import CHANGES
from icelock.spark.statements.definitions import DEFAULTS, sql_literal
from icelock.spark.statements.metadata_tables import load_metadata_table
from icelock.spark.statements.streams import open_stream, write_batch
from icelock.table.metadata_tables.columns import METADATA_TABLES
from icelock.table.plain import AnyTable
from icelock.table.read.scan import DataScan
from icelock.table.refs import no_such_ref

# What a name may have behind the table's, as in Java's catalog, and the option of a read that it stands for.
_SELECTOR: Final = re.compile(r"(branch|tag)_(.+)|(snapshot_id|at_timestamp)_([0-9]+)", re.DOTALL)
_SELECTED: Final = {"branch": BRANCH, "tag": TAG, "snapshot_id": SNAPSHOT_ID, "at_timestamp": AS_OF_TIMESTAMP}
# A table with this property is read and written, in sessions with one of these settings, where nobody else looks.
_STAGED: Final = "write.wap.enabled"
_STAGING: Final = ("spark.wap.branch", "spark.wap.id")
_TIME_TRANSFORMS: Final = {"year": "years", "month": "months", "day": "days", "hour": "hours"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """A table that Spark has resolved; ``at`` is the version that its name asks for, ``snapshot_id`` the one that it had then."""

    name: TableName
    table: AnyTable
    at: ReadOptions
    snapshot_id: int | None

    @property
    def writable(self) -> bool:
        """Whether rows can be written to this version: the main branch or a named one."""
        return self.at.snapshot_id is None and self.at.as_of_ms is None and self.at.tag is None


def load_table(session: StatementSession, asked: Asked) -> dict[str, Any]:
    """Return what Spark has to know of a table.

    Raises:
        NoSuchTableError: no such table.
        PolicyError: no such version, or a column that Spark has no type for.
    """
    name = asked.table
    catalog = session.catalog(name.catalog)
    suffix = ""
    if len(name.identifier) < 2:  # noqa: PLR2004 - a namespace and a table
        raise NoSuchTableError(f"there is no table {name}: it has no namespace")
    try:
        table = any_table_of(catalog, name, hint=not _is_part(name.identifier[-1]))
    except NoSuchTableError:
        *front, suffix = name.identifier
        if len(front) < 2 or not _is_part(suffix):  # noqa: PLR2004 - as above
            raise
        name = replace(name, identifier=tuple(front))
        table = any_table_of(catalog, name)
    at = _version(table, name, suffix, asked)
    if suffix.lower() == CHANGELOG:
        return load_changes(session, table, name, at)
    if suffix.lower() in METADATA_TABLES:
        return load_metadata_table(session, table, name, suffix.lower(), at)
    scan = scan_of(table, at)
    snapshot = scan.snapshot()
    loaded = LoadedTable(name=name, table=table, at=at, snapshot_id=None if snapshot is None else snapshot.snapshot_id)
    return _described(session, loaded, scan)


def table_exists(session: StatementSession, asked: Asked) -> bool:
    """Whether a catalog has a table of that name, encrypted or plain; its metadata tables and refs are there with it."""
    catalog, name = session.catalog(asked.table.catalog), asked.table.identifier
    *front, last = name
    if front and catalog.table_exists(name):
        return True
    return len(front) > 1 and _is_part(last) and catalog.table_exists(tuple(front))


def check_new(session: StatementSession, asked: Asked) -> None:
    """Refuse to make a table of a name that is a table's metadata table, branch, tag or snapshot, as a PolicyError."""
    *front, last = asked.table.identifier
    if len(front) < 2 or not _is_part(last):  # noqa: PLR2004 - a namespace and a table
        return
    catalog, table = session.catalog(asked.table.catalog), ".".join(front)
    if catalog.table_exists(asked.table.identifier) or not catalog.table_exists(tuple(front)):
        return
    selected = _SELECTOR.fullmatch(last)
    remedy = "it is there as long as the table is"
    if selected is not None and selected[1] is not None:
        remedy = f"CALL {asked.table.catalog}.system.create_{selected[1]}('{table}', '{selected[2]}') makes a {selected[1]}"
    raise PolicyError(f"{asked.table} is a part of the table {table}, and no table can be made of that name: {remedy}")


def _is_part(name: str) -> bool:
    """Whether a name that follows a table's may be one of a metadata table or a version."""
    return name.lower() in {*METADATA_TABLES, CHANGELOG} or _SELECTOR.fullmatch(name) is not None


def _version(table: AnyTable, name: TableName, suffix: str, asked: Asked) -> ReadOptions:
    options: dict[str, str] = {}
    selected = _SELECTOR.fullmatch(suffix)
    if selected is not None:
        kind, value = filter(None, selected.groups())
        options[_SELECTED[kind]] = value
    version, microseconds = asked.get("version"), asked.get("microseconds")
    if version is not None:
        number = is_number(version.removeprefix("-"))
        found = table.metadata.refs.get(version)
        # A ref may have the name that is a snapshot's number; Java takes the snapshot.
        if found is None and not number:
            raise PolicyError(f"table {name} {no_such_ref(table.metadata.refs, version)}")
        if found is None or (number and table.metadata.snapshot_by_id(int(version)) is not None):
            options[SNAPSHOT_ID] = version
        else:
            options[str(found.snapshot_ref_type)] = version
    if microseconds is not None:
        options[AS_OF_TIMESTAMP] = str(microseconds // 1000)
    return ReadOptions.parse({TABLE: str(name), **options})


def _described(session: StatementSession, loaded: LoadedTable, scan: DataScan) -> dict[str, Any]:
    table, metadata = loaded.table, loaded.table.metadata
    answers: dict[str, Answer] = {"rows": lambda asking, asked: _rows(asking, loaded, asked)}
    if loaded.writable:
        answers["open stream"] = lambda asking, asked: open_stream(asking, loaded, asked)
        answers |= {name: _of(change, loaded) for name, change in {**CHANGES, "write batch": write_batch}.items()}
    return {
        "target": session.target(answers),
        "name": str(loaded.name),
        "schema": _shown(scan.projection(), str(loaded.name)),
        "properties": _properties(loaded),
        "partitioning": [_transform(table.schema(), field) for field in table.spec().fields],
        "metadata_columns": _metadata_columns(loaded),
        "key": f"{metadata.table_uuid} {loaded.snapshot_id} {metadata.current_schema_id} {loaded.at.branch or ''}",
        "writable": loaded.writable,
        "seen": Seen.of(metadata).to_text(),
    }


def _of(change: Any, loaded: LoadedTable) -> Answer:
    def answer(session: StatementSession, asked: Asked) -> Any:
        _check_staging(session, loaded)
        return change(session, loaded, asked)

    return answer


def _check_staging(session: StatementSession, loaded: LoadedTable) -> None:
    """Refuse what everybody would see at once where the session asks for an audit first: icelock does not stage writes."""
    if loaded.at != ReadOptions(table=loaded.at.table) or str(loaded.table.properties.get(_STAGED)).lower() != "true":
        return
    for setting in _STAGING:
        if session.spark.conf.get(setting, None) is not None:
            raise PolicyError(
                f"table {loaded.name} has {_STAGED}, and the session {setting}: icelock does not stage writes. Write to "
                f"{loaded.name}.branch_x and call fast_forward, or take the setting away: spark.conf.unset({setting!r})"
            )


def _shown(schema: Schema, table: str) -> str:
    """Return the columns of a table as Spark's JSON, with the defaults of new rows where Spark looks for them."""
    shown = spark_schema(schema, table=table)
    for field, column in zip(schema.fields, shown.fields, strict=True):
        if field.write_default is not None:
            default = sql_literal(field.write_default, field.field_type)
            column.metadata = {**(column.metadata or {}), **dict.fromkeys(DEFAULTS, default)}
    return shown.json()


def _properties(loaded: LoadedTable) -> dict[str, str]:
    metadata = loaded.table.metadata
    return {
        **metadata.properties,
        "provider": "iceberg",
        "location": metadata.location,
        "format": "iceberg/parquet",
        "format-version": str(metadata.format_version),
        "current-snapshot-id": "none" if loaded.snapshot_id is None else str(loaded.snapshot_id),
    }


def _transform(schema: Schema, field: Any) -> tuple[str, str, int | None]:
    transform = field.transform
    name = str(transform).partition("[")[0]
    number = None
    if isinstance(transform, BucketTransform):
        number = transform.num_buckets
    elif isinstance(transform, TruncateTransform):
        number = transform.width
    return _TIME_TRANSFORMS.get(name, name), quoted(*names_to(schema.fields, field.source_id)), number


def _metadata_columns(loaded: LoadedTable) -> list[tuple[str, str, bool, str | None]]:
    metadata = loaded.table.metadata
    partition = partition_column(metadata.specs().values(), metadata.schemas)
    of_partition = [partition] if any(spec.fields for spec in metadata.specs().values()) else []
    fields = [SPEC_ID, *of_partition, FILE, POS, DELETED, ROW_ID, LAST_UPDATED]
    return [(field.name, spark_type(field.field_type, field.name, str(loaded.name)).json(), field.optional, field.doc) for field in fields]


def _rows(session: StatementSession, loaded: LoadedTable, asked: Asked) -> int:
    given: Mapping[str, str] = asked["options"]
    if not given:
        _check_staging(session, loaded)
    at = loaded.at
    snapshot_id = loaded.snapshot_id
    if given:
        at, snapshot_id = ReadOptions.parse({TABLE: str(loaded.name), **given}), None
    read = replace(at, columns=tuple(asked["columns"]))
    return session.give(read_loaded(session.spark, loaded.table, read, snapshot_id))


ANSWERS: Final[Mapping[str, Answer]] = {"load table": load_table, "table exists": table_exists, "check new": check_new}
