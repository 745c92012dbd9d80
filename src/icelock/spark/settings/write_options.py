"""Options of one write, checked: Java's names (``SparkWriteOptions``, Iceberg 1.12), and a few of icelock's own.

``WRITE`` is the one list of those that a write takes:

    where and what      ``table``, ``branch``, ``overwrite-mode``, ``overwrite-filter``, ``output-spec-id``, ``snapshot-property.*``
    against others      ``validate-from-snapshot-id``, ``isolation-level``
    files               ``OF_FILES``: each goes over a property of the table, for this write
    rows over tasks     ``SPREAD``, of ``write_to`` and SQL; ``use-table-distribution-and-ordering``
    batches of streams  ``streaming-query-id``, ``streaming-epoch-id``
    without effect      ``UNNEEDED``: checked, as code that was written for Java may have them

Java's others are refused with what to do instead; any other option is an error, so that none is misspelt and ignored.

Not here: options of a read (``options``), what the properties mean (``arrow.write.options``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from icelock.errors import PolicyError
from icelock.properties import DATA_KEY_LENGTH, ENCRYPTION_KEY_ID, TABLE_DEFAULT_PREFIX
from icelock.spark.settings.options import (
    BOOLEANS,
    BRANCH,
    TABLE,
    VALIDATE_FROM,
    TableName,
    flag,
    integer,
    known_options,
    named_ref,
    named_table,
)
from icelock.table.epochs import Epoch

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

OVERWRITE_FILTER: Final = "overwrite-filter"
OVERWRITE_MODE: Final = "overwrite-mode"
OUTPUT_SPEC: Final = "output-spec-id"
STREAM_QUERY: Final = "streaming-query-id"
STREAM_EPOCH: Final = "streaming-epoch-id"
SNAPSHOT_PROPERTY: Final = "snapshot-property."
ROWS_READ: Final = "icelock-rows-read"
"""Of our optimizer rule: what the rows come from (``OwnRows.seen``)."""
STATIC: Final = "static"
DYNAMIC: Final = "dynamic"
DISTRIBUTION_MODE: Final = "distribution-mode"
FANOUT: Final = "fanout-enabled"
SPREAD: Final = (DISTRIBUTION_MODE, FANOUT)
AS_THE_TABLE_SAYS: Final = "use-table-distribution-and-ordering"
ISOLATION: Final = "isolation-level"
ISOLATION_LEVELS: Final = ("serializable", "snapshot")
WRITE_FORMAT: Final = "write-format"
TARGET_FILE_SIZE: Final = "target-file-size-bytes"
CODEC: Final = "compression-codec"
LEVEL: Final = "compression-level"
OF_FILES: Final = (CODEC, LEVEL, TARGET_FILE_SIZE, WRITE_FORMAT)

_FORMATS: Final = ("avro", "orc", "parquet", "puffin")
# By name, the values that Java takes; None: a whole number. Deletes of format version 3 are vectors, one a data file, in Puffin.
UNNEEDED: Final[Mapping[str, tuple[str, ...] | None]] = {
    "check-nullability": BOOLEANS,  # values are looked at, not what Spark says of a column
    "check-ordering": BOOLEANS,  # columns are matched by name
    "delete-format": _FORMATS,
    "delete-granularity": ("file", "partition"),
    "target-delete-file-size-bytes": None,
}
WRITE: Final = tuple(
    sorted(
        (
            *(BRANCH, ISOLATION, OUTPUT_SPEC, OVERWRITE_FILTER, OVERWRITE_MODE, STREAM_EPOCH, STREAM_QUERY, TABLE, VALIDATE_FROM),
            *(*OF_FILES, AS_THE_TABLE_SAYS, *UNNEEDED),
        )
    )
)
_KNOWN: Final = tuple(sorted((*WRITE, *SPREAD, f"{SNAPSHOT_PROPERTY}NAME")))
_NEW_COLUMNS: Final = "add its columns first, by ALTER TABLE ... ADD COLUMN, or by MERGE WITH SCHEMA EVOLUTION"
_INSTEAD: Final = {
    "advisory-partition-size": "set spark.sql.adaptive.advisoryPartitionSizeInBytes in the session",
    "compression-strategy": "it is for ORC files, which encrypted tables do not have: leave it out",
    "merge-schema": _NEW_COLUMNS,
    "mergeschema": _NEW_COLUMNS,
    "output-sort-order-id": "files are sorted as the table says: leave it out, or change the order by CALL catalog.system.set_write_order",
    "rewritten-file-scan-task-set-id": "use icelock.spark.compact, which chooses files and writes them again",
    "shred-variants": "columns of type variant are not written: leave it out",
    "use-merge-append-for-streaming": "manifests are merged as the table's commit.manifest-merge.enabled says: leave it out",
    "variant-inference-buffer-size": "columns of type variant are not written: leave it out",
}
_OF_TABLES: Final = (ENCRYPTION_KEY_ID, DATA_KEY_LENGTH, "write.", "read.", "commit.", "history.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where and how to write.

    ``overwrite_filter`` is None when all rows are replaced, or the partitions that get rows (``dynamic``). ``of_files`` are the options
    that go over a table's properties (``properties_for``).
    """

    table: TableName
    branch: str | None = None
    overwrite_filter: BooleanExpression | None = None
    dynamic: bool = False
    snapshot_properties: Mapping[str, str] = field(default_factory=dict)
    validate_from: int | None = None
    output_spec: int | None = None
    epoch: Epoch | None = None
    rows_read: str = ""
    isolation: str | None = None
    of_files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, overwrite: bool) -> Self:
        """Check the options of a write: an unknown one, one of an overwrite in an append, an invalid value or no table is a PolicyError."""
        from icelock.plan.filters.text import parse_filter

        properties = snapshot_properties(options)
        others = {name.lower(): value for name, value in options.items() if not name.lower().startswith(SNAPSHOT_PROPERTY)}
        rows_read = others.pop(ROWS_READ, "")
        given = known_options(others, _KNOWN, "write", _why_not)
        _check_unneeded(given)
        table = named_table(given, "save")
        validate_from, output_spec = (integer(name, given[name]) if name in given else None for name in (VALIDATE_FROM, OUTPUT_SPEC))
        misplaced = [name for name in (OVERWRITE_FILTER, OVERWRITE_MODE) if name in given and not overwrite]
        if misplaced:
            raise PolicyError(f"option {misplaced[0]} needs mode('overwrite'), and the mode is append")
        mode = given.get(OVERWRITE_MODE, STATIC).lower()
        if mode not in {STATIC, DYNAMIC}:
            raise PolicyError(f"option {OVERWRITE_MODE} is {given[OVERWRITE_MODE]!r}; it must be {STATIC} or {DYNAMIC}")
        if mode == DYNAMIC and OVERWRITE_FILTER in given:
            raise PolicyError(
                f"{OVERWRITE_MODE}={DYNAMIC} replaces the partitions that get rows, so it excludes {OVERWRITE_FILTER}: keep one"
            )
        return cls(
            table=table,
            branch=named_ref(given, BRANCH),
            overwrite_filter=parse_filter(given[OVERWRITE_FILTER]) if OVERWRITE_FILTER in given else None,
            dynamic=mode == DYNAMIC,
            snapshot_properties=properties,
            validate_from=validate_from,
            output_spec=output_spec,
            epoch=_epoch(given),
            rows_read=rows_read,
            isolation=_one_of(given, ISOLATION, ISOLATION_LEVELS),
            of_files={name: given[name] for name in (*OF_FILES, AS_THE_TABLE_SAYS) if name in given},
        )


def _epoch(given: Mapping[str, str]) -> Epoch | None:
    """Return the batch of a stream that is written; one option without the other is a PolicyError."""
    if STREAM_QUERY not in given and STREAM_EPOCH not in given:
        return None
    for name, other in ((STREAM_QUERY, STREAM_EPOCH), (STREAM_EPOCH, STREAM_QUERY)):
        if name not in given:
            raise PolicyError(f"option {other} needs the option {name}: a batch is known by both")
    return Epoch.of(given[STREAM_QUERY], integer(STREAM_EPOCH, given[STREAM_EPOCH]))


def properties_for(properties: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Return a table's properties as a write with these options (``WriteOptions.of_files``) has them.

    Raises:
        PolicyError: a value that files cannot have; names the option's property.
    """
    from icelock.arrow.write import options as files

    over = dict(properties)
    if WRITE_FORMAT in options:
        over[files.FORMAT] = options[WRITE_FORMAT]
    if TARGET_FILE_SIZE in options:
        over[files.TARGET_FILE_BYTES] = options[TARGET_FILE_SIZE]
    avro = files.check_file_format(over) == files.AVRO
    if CODEC in options:
        over[files.AVRO_CODEC if avro else files.CODEC] = options[CODEC]
    if LEVEL in options:
        over[files.AVRO_LEVEL if avro else files.LEVEL] = options[LEVEL]
    try:
        files.WriteOptions.parse(over)
    except PolicyError as e:
        raise PolicyError(f"the options {', '.join(sorted(options))} do not fit: {e}") from e
    return over


def distribution_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of distribution, whose names are in lower case then, and the others, with the one that is of both."""
    spread = {name.lower(): value for name, value in options.items() if name.lower() in {*SPREAD, AS_THE_TABLE_SAYS}}
    return spread, {name: value for name, value in options.items() if name.lower() not in SPREAD}


def snapshot_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options ``snapshot-property.*`` without their prefix."""
    return {name[len(SNAPSHOT_PROPERTY) :]: value for name, value in options.items() if name.lower().startswith(SNAPSHOT_PROPERTY)}


def _one_of(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> str | None:
    if name not in given:
        return None
    value = given[name].strip().lower()
    if value not in values:
        raise PolicyError(f"option {name} is {given[name]!r}; it must be {', '.join(values[:-1])} or {values[-1]}")
    return value


def _check_unneeded(given: Mapping[str, str]) -> None:
    """Check the values of options that change nothing: a misspelt one would be an error in Java."""
    flag(given.get(AS_THE_TABLE_SAYS), f"option {AS_THE_TABLE_SAYS}")
    for name, values in UNNEEDED.items():
        if values is not None:
            _one_of(given, name, values)
        elif name in given:
            integer(name, given[name])


def _why_not(name: str) -> str | None:
    """Return why an option that is known to Java, or to another way of writing, is none here; else None."""
    if name in SPREAD:
        return f"{name!r} is an option of icelock.spark.write_to(df, table): a Python data source cannot ask Spark to distribute rows"
    if name in _INSTEAD:
        return f"option {name!r} of Java Iceberg is not one of icelock's: {_INSTEAD[name]}"
    if name.startswith(_OF_TABLES):
        return (
            f"{name!r} is a property of a table, and Spark makes none of an option, nor of saveAsTable's: a new table gets it by "
            f"df.writeTo(...).tableProperty({name!r}, ...).create(), or by the catalog's {TABLE_DEFAULT_PREFIX + name}; one that "
            "is there by ALTER TABLE ... SET TBLPROPERTIES"
        )
    return None
