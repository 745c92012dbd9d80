"""CREATE, ALTER, DROP and RENAME of tables, and namespaces.

Not here: tables that get rows at once (``changes``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, Final

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.exceptions import NoSuchTableError, ValidationError
from pyiceberg.expressions.literals import literal
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark
from pyspark.sql import types as sp

from icelock import properties as names
from icelock.arrow.types import output_type
from icelock.catalog.base import EncryptedCatalog
from icelock.errors import PolicyError
from icelock.spark.columns.types import spark_type
from icelock.spark.driver.new_table import NO_CLUSTERING, column_type, iceberg_schema, partition_spec, resolved
from icelock.spark.jvm.rules import read_again
from icelock.spark.sealed.job import Action, Job, NewTable
from icelock.spark.settings.catalogs import any_table_of
from icelock.spark.statements.asked import Answer, Asked, StatementSession
from icelock.spark.table_writer import LOCATION
from icelock.table.plain import AnyTable

_FIRST: Final = "FIRST"
_PLAIN_VERSION: Final = 2
_PROMOTIONS: Final = frozenset({(ice.IntegerType, ice.LongType), (ice.FloatType, ice.DoubleType)})
_LITERALS: Final[dict[type[IcebergType], str]] = {
    ice.DateType: "DATE",
    ice.TimestampType: "TIMESTAMP_NTZ",
    ice.TimestamptzType: "TIMESTAMP",
}
_CAST: Final = (ice.FloatType, ice.DoubleType, ice.DecimalType, ice.LongType)
_PROVIDERS: Final = frozenset({"iceberg", "icelock", "parquet"})
# What Spark adds to the properties of a new table.
_SPARKS: Final = frozenset({"provider", "owner", "external", "is_managed_location"})
# What SHOW CREATE TABLE shows beside a table's own properties.
_SHOWN: Final = frozenset({"current-snapshot-id", "format"})
_OPTION: Final = "option."
# What Spark asks for, as SparkCatalog.java names it.
_MODES: Final[Mapping[str, Action]] = {"create": Action.CREATE, "replace": Action.REPLACE, "createOrReplace": Action.CREATE_OR_REPLACE}
# Literals that the parser replaces by a day or an instant, and text that a cast does.
_MOMENT: Final = re.compile(r"\b(?:date|timestamp(?:_ltz|_ntz)?)\s*['\"]\s*(?:now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_WORD: Final = re.compile(r"['\"]\s*(?:now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_MOMENTS: Final = (ice.DateType, ice.TimestampType, ice.TimestamptzType)
# Metadata of a column: the default of new rows as it was given, and as a literal.
DEFAULTS: Final = ("CURRENT_DEFAULT", "EXISTS_DEFAULT")


def create_table(session: StatementSession, asked: Asked) -> None:
    """Create or replace a table without rows.

    Raises:
        PolicyError: it would be plain, or is what an encrypted table cannot be; nothing was created.
        TableAlreadyExistsError, NoSuchTableError, NoSuchNamespaceError: as PyIceberg.
    """
    name, given = asked.table, sp.StructType.fromJson(json.loads(asked["schema"]))
    catalog = session.catalog(name.catalog)
    schema = with_defaults(session, iceberg_schema(given, required=True), given)
    properties = table_properties(asked["properties"], table=str(name))
    form = new_table_form(schema, asked, properties)
    if makes_plain(session, asked, properties):
        plain_schema(schema, table=str(name))
        catalog.create_table(name.identifier, **form)
        return
    new = NewTable(properties=form["properties"], partitioned_by=())
    job = resolved(catalog, Job(action=_MODES[asked["mode"]], table=name, new_table=new))
    if job.action == Action.CREATE:
        catalog.create_table(name.identifier, **form)
    else:
        catalog.replace_table_transaction(name.identifier, **form).commit_transaction()


def new_table_form(schema: Schema, asked: Asked, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of ``create_table`` and the like for a new table."""
    return {
        "schema": schema,
        "location": properties.get(LOCATION),
        "partition_spec": partition_spec(schema, tuple(asked["partitioned_by"]), table=str(asked.table)),
        "properties": {name: value for name, value in properties.items() if name != LOCATION},
    }


def plain_schema(schema: Schema, *, table: str) -> Schema:
    """Return the schema of a new plain table, which knows the types of format version 2; another one is a PolicyError."""
    for field in schema.fields:
        if field.field_type.minimum_format_version() > _PLAIN_VERSION:
            raise PolicyError(f"table {table} is plain, and column {field.name!r} is {field.field_type}, which it cannot have: cast it")
    return schema


def makes_plain(session: StatementSession, asked: Asked, properties: Mapping[str, str]) -> bool:
    """Whether a new table is plain, by its own property or the catalog's ``icelock.plain-tables``; the catalog may refuse it."""
    if asked["mode"] != "create":
        return False
    rules, name = session.catalog(asked.table.catalog).new_tables, ".".join(asked.table.identifier)
    may = names.flag(properties, names.PLAIN, default=False) or rules.names_plain(name)
    return may and names.ENCRYPTION_KEY_ID not in rules.of_new(properties, table=name)


def table_properties(given: Mapping[str, str], *, table: str) -> dict[str, str]:
    """Return the properties that a statement gives a new table, its location too, without those that Spark adds.

    Raises:
        PolicyError: USING names another format.
    """
    provider = given.get("provider")
    # saveAsTable gives Spark's own default, parquet, as the provider.
    if provider is not None and provider.lower() not in _PROVIDERS:
        raise PolicyError(
            f"table {table}: a catalog of icelock has Iceberg tables, not {provider!r}: leave USING out, or say USING iceberg"
        )
    return {name.removeprefix(_OPTION): value for name, value in given.items() if name not in _SPARKS | _SHOWN}


def with_defaults(session: StatementSession, schema: Schema, given: sp.StructType) -> Schema:
    """Return the schema with the defaults that Spark has in the metadata of a new table's columns."""
    fields = []
    for field, source in zip(schema.fields, given.fields, strict=True):
        default = (source.metadata or {}).get(DEFAULTS[0])
        if default is None:
            fields.append(field)
            continue
        # A new table has no older rows, for which an initial default would be.
        fields.append(
            field.model_copy(update={"write_default": _value(session, default, source.dataType, field.field_type, column=field.name)})
        )
    return Schema(*fields)


def _value(session: StatementSession, default: str, shown: sp.DataType, kind: IcebergType, *, column: str) -> Any:
    """Return the value of a default as PyIceberg has it; one that depends on who inserts a row, or when, is a PolicyError."""
    row = session.spark.range(1).select(F.expr(default).cast(shown).alias("value"))
    plan, jvm = row._jdf.queryExecution().analyzed(), session.spark._jvm
    # Spark's own question for what it must replace by the values of one query: now(), current_user(), current_timezone() and their like.
    moving = plan.containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE())  # type: ignore[union-attr]
    named = _MOMENT.search(default) or (isinstance(kind, _MOMENTS) and _WORD.search(default))
    if moving or not plan.deterministic() or named:
        raise PolicyError(
            f"the default {default} of column {column!r} is not a constant, and Iceberg's defaults are: all rows would get the value that "
            "it has now. Say a constant, or give the value in each INSERT"
        )
    found = row.toArrow().column(0)
    if pa.types.is_floating(found.type) and not math.isfinite(found[0].as_py() or 0.0):
        raise PolicyError(
            f"the default {default} of column {column!r} is not a finite number: metadata is JSON, which has numbers for finite ones only, "
            "and Java does not read what it writes for others. Give the value in each INSERT"
        )
    try:
        value = found[0].as_py()
        return None if value is None else literal(value).to(kind).value
    except (OverflowError, TypeError, ValueError) as e:  # Python's calendar; PyIceberg's of lists, maps and structs
        raise PolicyError(
            f"the default {default} of column {column!r} cannot be kept: icelock has defaults of the years 1 to 9999, and none of lists, "
            "maps and structs. Give the value in each INSERT"
        ) from e


def sql_literal(value: Any, kind: IcebergType) -> str:
    """Return the value of a default as a literal of Spark's SQL, the same under any setting of the parser."""
    if isinstance(kind, ice.StringType | ice.UUIDType):
        text = str(value)
        # Whether a backslash escapes is spark.sql.parser.escapedStringLiterals.
        return f"CAST(X'{text.encode().hex()}' AS STRING)" if "\\" in text or "'" in text else f"'{text}'"
    if isinstance(kind, ice.BinaryType | ice.FixedType):
        return f"X'{bytes(value).hex()}'"
    text = str(pa.scalar(value, output_type(kind)).as_py()) if not isinstance(value, bool) else str(value).lower()
    named = _LITERALS.get(type(kind))
    if named is not None:
        return f"{named}'{text}'"
    return f"CAST('{text}' AS {spark_type(kind, '', '').simpleString()})" if isinstance(kind, _CAST) else text


def alter_table(session: StatementSession, asked: Asked) -> None:
    """Change a table's columns and properties, all in one commit.

    Raises:
        NoSuchTableError: no such table.
        PolicyError: what an encrypted table cannot become.
    """
    changes: list[dict[str, Any]] = asked["changes"]
    _check_changes(asked, changes)
    columns = [change for change in changes if "column" in change]
    removed = [change["property"] for change in changes if change["kind"] == "RemoveProperty"]
    properties = {change["property"]: change["value"] for change in changes if change["kind"] == "SetProperty"}
    catalog = session.catalog(asked.table.catalog)
    try:
        table = any_table_of(catalog, asked.table)
    except NoSuchTableError:
        _check_whole(catalog, asked)
        raise
    there = [name for name in removed if name in table.properties]  # others are passed over, as in Java
    try:
        with table.transaction() as transaction:
            if columns:
                _alter_columns(session, table, transaction, columns)
            if properties:
                transaction.set_properties(properties)
            if there:
                transaction.remove_properties(*there)
    except ValidationError as e:  # PyIceberg's, of the partition spec and the sort order with the new columns
        raise PolicyError(
            f"table {asked.table}: {e}. A column that partitions or orders the table stays as it is: first call drop_partition_field, or "
            "set_write_order without an order"
        ) from e
    read_again(session.spark, str(asked.table), str(table.metadata.table_uuid))


def _check_changes(asked: Asked, changes: list[dict[str, Any]]) -> None:
    """Refuse what is no change of columns or properties, such as that of a clustering, and a table's move."""
    for change in changes:
        kind = change["kind"]
        if "column" not in change and kind not in {"SetProperty", "RemoveProperty"}:
            raise PolicyError(f"table {asked.table}: {NO_CLUSTERING if kind == 'ClusterBy' else f'icelock cannot make the change {kind}'}")
        if kind == "SetProperty" and change["property"] == LOCATION:
            raise PolicyError(
                f"table {asked.table} stays in its folder. To have its rows in {change['value']}, make another table of them: CREATE TABLE "
                "... LOCATION ... AS SELECT"
            )


def _alter_columns(session: StatementSession, table: AnyTable, transaction: Any, changes: list[dict[str, Any]]) -> None:
    """Stage changes of columns that Iceberg's rules allow: rows that are there keep their meaning (spec, "Schema Evolution")."""
    try:
        with transaction.update_schema() as update:
            for change in changes:
                _alter_column(session, table.schema(), update, change)
    except PolicyError:
        raise
    except (ValueError, ValidationError) as e:  # PyIceberg's
        raise PolicyError(f"table {'.'.join(table.name())}: {e}") from e


def _alter_column(session: StatementSession, schema: Schema, update: Any, change: Mapping[str, Any]) -> None:
    path, kind = tuple(change["column"]), change["kind"]
    if kind == "AddColumn":
        shown, default = _spark_type(change["type"]), change["default"]
        added = column_type(shown, path)
        value = None if default is None else _value(session, default, shown, added, column=".".join(path))
        update.add_column(path, added, doc=change["comment"], required=not change["nullable"], default_value=value)
        _move(update, path, change["position"])
    elif kind == "DeleteColumn":
        update.delete_column(path)
    elif kind == "RenameColumn":
        update.rename_column(path, change["name"])
    elif kind == "UpdateColumnType":
        known, wanted = schema.find_type(".".join(path)), column_type(_spark_type(change["type"]), path)
        if not _promotes(known, wanted):
            raise PolicyError(
                f"column {'.'.join(path)!r} is {known}, and cannot become {wanted}: rows that are there would be misread; Iceberg lets int "
                "become long, float double, and a decimal get more digits before the point. Add a column, and fill it with an UPDATE"
            )
        update.update_column(path, field_type=wanted)
    elif kind == "UpdateColumnNullability":
        update.update_column(path, required=not change["nullable"])
    elif kind == "UpdateColumnComment":
        update.update_column(path, doc=change["comment"])
    elif kind == "UpdateColumnPosition":
        _move(update, path, change["position"])
    elif kind == "UpdateColumnDefaultValue":
        name = ".".join(path)
        altered, default = schema.find_type(name), change["default"]
        value = _value(session, default, spark_type(altered, name, name), altered, column=name) if default else None
        update.set_default_value(path, value)
    else:
        raise PolicyError(f"icelock cannot make the change {kind} of column {'.'.join(path)}")


def _promotes(known: IcebergType, wanted: IcebergType) -> bool:
    """Whether a column's type may become another one (spec, "Schema Evolution"); PyIceberg lets a decimal's scale change too."""
    if isinstance(known, ice.DecimalType) and isinstance(wanted, ice.DecimalType):
        return known.scale == wanted.scale and known.precision <= wanted.precision
    return known == wanted or (type(known), type(wanted)) in _PROMOTIONS


def _spark_type(text: str) -> sp.DataType:
    """Return the type of the one column of a schema as JSON, which alone has collations."""
    kind: sp.DataType = sp.StructType.fromJson(json.loads(text)).fields[0].dataType
    return kind


def _move(update: Any, path: tuple[str, ...], position: str | None) -> None:
    if position == _FIRST:
        update.move_first(path)
    elif position is not None:
        update.move_after(path, (*path[:-1], position.removeprefix("AFTER ").strip("`")))


def drop_table(session: StatementSession, asked: Asked) -> bool:
    """Drop a table, its files stay; return whether it was there."""
    catalog = session.catalog(asked.table.catalog)
    return _dropped(catalog, catalog.drop_table, asked)


def purge_table(session: StatementSession, asked: Asked) -> bool:
    """Drop a table and delete its files; return whether it was there."""
    catalog = session.catalog(asked.table.catalog)
    return _dropped(catalog, catalog.purge_table, asked)


def _dropped(catalog: EncryptedCatalog, drop: Callable[[tuple[str, ...]], None], asked: Asked) -> bool:
    try:
        drop(asked.table.identifier)
    except NoSuchTableError:
        _check_whole(catalog, asked)
        return False
    return True


def _check_whole(catalog: EncryptedCatalog, asked: Asked) -> None:
    """Refuse a branch, a tag or a metadata table by its name, which Spark takes for a table's."""
    front = asked.table.identifier[:-1]
    if len(front) > 1 and catalog.table_exists(front):
        whole = f"{asked.table.catalog}.{'.'.join(front)}"
        raise PolicyError(
            f"{asked.table} is a part of table {whole}: its columns and properties are the table's (ALTER TABLE {whole}), CALL "
            "create_branch, drop_branch, create_tag and drop_tag make and drop branches and tags, and metadata tables stay"
        )


def rename_table(session: StatementSession, asked: Asked) -> None:
    """Rename a table within its catalog."""
    to = list(asked["to"])
    if len(to) > len(asked.table.identifier) and to[0] == asked.table.catalog:
        del to[0]
    session.catalog(asked.table.catalog).rename_table(asked.table.identifier, tuple(to))


def list_tables(session: StatementSession, asked: Asked) -> list[str]:
    """Return the names of a namespace's tables; a catalog itself has none."""
    if not asked.namespace:
        return []
    return sorted(identifier[-1] for identifier in session.catalog(asked["catalog"]).list_tables(asked.namespace))


def list_namespaces(session: StatementSession, asked: Asked) -> list[list[str]]:
    """Return the namespaces in a namespace, or in the catalog."""
    return [list(namespace) for namespace in session.catalog(asked["catalog"]).list_namespaces(asked.namespace)]


def describe_namespace(session: StatementSession, asked: Asked) -> dict[str, str]:
    """Return a namespace's properties."""
    found = session.catalog(asked["catalog"]).load_namespace_properties(asked.namespace)
    return {name: str(value) for name, value in found.items()}


def create_namespace(session: StatementSession, asked: Asked) -> None:
    """Create a namespace. Spark names its owner, which Iceberg's catalogs keep only where the user says so."""
    properties = {name: value for name, value in asked["properties"].items() if name != "owner"}
    session.catalog(asked["catalog"]).create_namespace(asked.namespace, properties)


def alter_namespace(session: StatementSession, asked: Asked) -> None:
    """Change a namespace's properties."""
    session.catalog(asked["catalog"]).update_namespace_properties(asked.namespace, set(asked["removed"]), asked["set"])


def drop_namespace(session: StatementSession, asked: Asked) -> bool:
    """Drop a namespace; with ``cascade`` its tables first, whose files stay."""
    catalog = session.catalog(asked["catalog"])
    if asked["cascade"]:
        for identifier in catalog.list_tables(asked.namespace):
            catalog.drop_table(identifier)
    catalog.drop_namespace(asked.namespace)
    return True


def told_version(_session: StatementSession, _asked: Asked) -> str:
    """Return what the function ``iceberg_version`` of a catalog returns."""
    return f"icelock {version('icelock')}"


ANSWERS: Final[Mapping[str, Answer]] = {
    "version": told_version,
    "alter table": alter_table,
    "drop table": drop_table,
    "purge table": purge_table,
    "rename table": rename_table,
    "list tables": list_tables,
    "list namespaces": list_namespaces,
    "describe namespace": describe_namespace,
    "create namespace": create_namespace,
    "alter namespace": alter_namespace,
    "drop namespace": drop_namespace,
}
