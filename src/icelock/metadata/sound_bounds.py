"""Bounds of other writers: one that is not a value of its column's type is ignored, not an error (spec, Appendix D).

Writers cut text inside a character, keep the bounds of a promoted column, or write anything. PyIceberg decodes bounds where it needs
them, and raises whatever that leads to. Here an invalid bound counts as missing, so that every value is possible. Not so in a manifest
list, where a missing bound means that there are no values: such a summary is ignored.

    int in a long, float in a double: kept, as in Java (``Conversions.fromByteBuffer``)
    date in a timestamp, other lengths, text that is not UTF-8, decimals with too many digits: invalid

Not here: bounds that we write (``arrow.write.metrics``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyiceberg import types as ice
from pyiceberg.conversions import from_bytes

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata

_LENGTHS: Final[Mapping[type[ice.IcebergType], tuple[int, ...]]] = {
    ice.BooleanType: (1,),
    ice.IntegerType: (4,),
    ice.DateType: (4,),
    ice.LongType: (8, 4),
    ice.FloatType: (4,),
    ice.DoubleType: (8, 4),
    ice.UUIDType: (16,),
    **dict.fromkeys((ice.TimeType, ice.TimestampType, ice.TimestamptzType, ice.TimestampNanoType, ice.TimestamptzNanoType), (8,)),
}

TypeOf = Callable[[int], ice.IcebergType | None]


def is_sound(kind: ice.IcebergType | None, bound: bytes) -> bool:
    """Whether a bound is a value of a type."""
    lengths = _LENGTHS.get(type(kind)) if kind is not None else None
    if lengths is not None:
        return len(bound) in lengths
    if isinstance(kind, ice.StringType):
        try:
            bound.decode()
        except UnicodeDecodeError:
            return False
    if isinstance(kind, ice.DecimalType):
        return bool(bound) and abs(int.from_bytes(bound, "big", signed=True)) < 10**kind.precision
    return True


def decoded_bounds(kind: ice.IcebergType | None, lower: bytes | None, upper: bytes | None) -> tuple[Any, Any] | None:
    """Return a lower and an upper bound as values; None unless both are there and are values of the type."""
    if lower is None or upper is None or not isinstance(kind, ice.PrimitiveType) or not (is_sound(kind, lower) and is_sound(kind, upper)):
        return None
    return from_bytes(kind, lower), from_bytes(kind, upper)


class SoundBounds(dict[int, bytes]):
    """A file's bounds, of which ``get`` returns only those that are values of their columns."""

    def __init__(self, bounds: Mapping[int, bytes], type_of: TypeOf) -> None:
        super().__init__(bounds)
        self._type_of = type_of

    def get(self, field_id: int, default: Any = None, /) -> Any:
        """Return a bound, or ``default`` if it is missing or invalid."""
        bound = super().get(field_id)
        return default if bound is None or not is_sound(self._type_of(field_id), bound) else bound


class SoundFile:
    """A manifest's file as PyIceberg's metrics evaluators see it."""

    __slots__ = ("_file", "lower_bounds", "upper_bounds")

    def __init__(self, file: Any, type_of: TypeOf) -> None:
        self._file = file
        self.lower_bounds = SoundBounds(file.lower_bounds or {}, type_of)
        self.upper_bounds = SoundBounds(file.upper_bounds or {}, type_of)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def types_of(schema: Schema) -> TypeOf:
    """Return a function from a column's id to its type; None for an unknown id."""
    known = {field_id: schema.find_type(field_id) for field_id in schema.field_ids}
    return known.get


def on_sound_files(evaluate: Callable[[DataFile], bool], schema: Schema) -> Callable[[DataFile], bool]:
    """Return PyIceberg's metrics evaluator, for files of any writer."""
    type_of = types_of(schema)
    return lambda file: evaluate(SoundFile(file, type_of))  # type: ignore[arg-type]  # the parts that it reads


def on_sound_manifests(evaluate: Callable[[ManifestFile], bool], metadata: TableMetadata, spec_id: int) -> Callable[[ManifestFile], bool]:
    """Return PyIceberg's evaluator of partition summaries for manifests of any writer: one with invalid bounds may hold anything."""
    kinds = [field.field_type for field in metadata.specs()[spec_id].partition_type(metadata.schema()).fields]
    return lambda manifest: not summaries_are_sound(manifest, kinds) or evaluate(manifest)


def summaries_are_sound(manifest: ManifestFile, kinds: list[ice.IcebergType]) -> bool:
    """Whether all bounds in a manifest's row are values of its partition's types."""
    for kind, summary in zip(kinds, manifest.partitions or [], strict=False):
        for bound in (summary.lower_bound, summary.upper_bound):
            if bound is not None and not is_sound(kind, bound):
                return False
    return True
