"""The partition of a data file that is given to a commit: its spec is the table's, with a value of the right type for each field.

A manifest is written by position and Avro takes what looks like its type, so that a wrong value is found by whoever reads it, or by nobody.

Not here: whether the file is the table's, and new (``table.commit.staged``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import BinaryType, BooleanType, FixedType, IcebergType, PrimitiveType, StringType

from icelock.errors import PolicyError
from icelock.metadata.sound_bounds import is_sound
from icelock.plan.partition_set import partition_kinds, partition_values

_CLASSES: Final = {BooleanType: bool, StringType: str, BinaryType: bytes, FixedType: bytes}


def check_partitions(metadata: TableMetadata, files: Iterable[DataFile], *, table: str) -> None:
    """Check the partition spec and the partition values of data files.

    Raises:
        PolicyError: a spec that the table does not have, too few or too many values, or one that is not of its field's type (Iceberg spec,
            "Partition Transforms": the result's type).
    """
    specs, kinds = metadata.specs(), dict[int, list[IcebergType | None]]()
    for file in files:
        spec_id = getattr(file, "_spec_id", None)  # PyIceberg's property fails without it
        if spec_id not in specs:
            raise PolicyError(
                f"table {table}: {file.file_path} has partition spec {spec_id}, and the table has {', '.join(map(str, sorted(specs)))}: "
                "set the file's spec_id to the one that it was written with"
            )
        if spec_id not in kinds:
            kinds[spec_id] = partition_kinds(metadata, spec_id)
        names = [field.name for field in specs[spec_id].fields]
        _check_values(file, names, kinds[spec_id], table=table)


def _check_values(file: DataFile, names: Sequence[str], kinds: Sequence[IcebergType | None], *, table: str) -> None:
    values = () if file.partition is None else partition_values(file)
    remedy = "set the file's partition to a Record of one value for each field of its spec, in that order"
    if len(values) != len(names):
        wanted = f"{len(names)} ({', '.join(names)})" if names else "none"
        raise PolicyError(
            f"table {table}: {file.file_path} has {len(values)} partition values, and partition spec {file.spec_id} wants "
            f"{wanted}: {remedy}"
        )
    for name, kind, value in zip(names, kinds, values, strict=True):
        if value is not None and isinstance(kind, PrimitiveType) and not _is_of(kind, value):
            raise PolicyError(
                f"table {table}: {file.file_path} has a {type(value).__name__} as partition value {name}, which is no {kind}: {remedy}, "
                "as the field's transform gives it"
            )


def _is_of(kind: PrimitiveType, value: Any) -> bool:
    """Whether a value is one of a type, by writing it as a bound (Iceberg spec, Appendix D)."""
    if not isinstance(value, _CLASSES.get(type(kind), object)):
        return False
    try:
        stored = to_bytes(kind, cast("Any", value))
    except (ValueError, TypeError, AttributeError, OverflowError, ArithmeticError, struct.error):
        return False
    return is_sound(kind, stored) and (not isinstance(kind, FixedType) or len(stored) == len(kind))
