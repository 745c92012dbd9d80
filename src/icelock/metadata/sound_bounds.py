"""Bounds of other writers: what is no value of its column's type says nothing, and is no error (spec, Appendix D).

Writers cut text inside of a character, keep the bounds of a column that was promoted, or write what they like. PyIceberg decodes bounds
where it needs them, and raises whatever that leads to. Here a bound that is none is as one that is missing: then every value is possible.
Not so in a manifest list, where a missing bound means that there are no values: such a summary is not looked at.

    int in a long, float in a double: kept, as in Java (``Conversions.fromByteBuffer``)
    date in a timestamp, other lengths, text that is no UTF-8, decimals with too many digits: none

Not here: bounds that we write (``arrow.write.bounds``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyiceberg import types as ice

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


class SoundBounds(dict[int, bytes]):
    """The bounds of a file as they are, of which ``get`` gives those only that are values of their columns."""

    def __init__(self, bounds: Mapping[int, bytes], type_of: TypeOf) -> None:
        super().__init__(bounds)
        self._type_of = type_of

    def get(self, field_id: int, default: Any = None, /) -> Any:
        """Return a bound, or ``default`` where there is none that is sound."""
        bound = super().get(field_id)
        return default if bound is None or not is_sound(self._type_of(field_id), bound) else bound


class SoundFile:
    """A file of a manifest as PyIceberg's evaluators of metrics see it."""

    __slots__ = ("_file", "lower_bounds", "upper_bounds")

    def __init__(self, file: Any, type_of: TypeOf) -> None:
        self._file = file
        self.lower_bounds = SoundBounds(file.lower_bounds or {}, type_of)
        self.upper_bounds = SoundBounds(file.upper_bounds or {}, type_of)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def types_of(schema: Schema) -> TypeOf:
    """Return what gives the type of a schema's column; None for one that it has not."""
    known = {field_id: schema.find_type(field_id) for field_id in schema.field_ids}
    return known.get


def on_sound_files(evaluate: Callable[[DataFile], bool], schema: Schema) -> Callable[[DataFile], bool]:
    """Return PyIceberg's evaluator of metrics for files of any writer."""
    type_of = types_of(schema)
    return lambda file: evaluate(SoundFile(file, type_of))  # type: ignore[arg-type]  # the parts that it reads


def on_sound_manifests(evaluate: Callable[[ManifestFile], bool], metadata: TableMetadata, spec_id: int) -> Callable[[ManifestFile], bool]:
    """Return PyIceberg's evaluator of partition summaries for manifests of any writer: one that is not sound may hold anything."""
    kinds = [field.field_type for field in metadata.specs()[spec_id].partition_type(metadata.schema()).fields]
    return lambda manifest: not summaries_are_sound(manifest, kinds) or evaluate(manifest)


def summaries_are_sound(manifest: ManifestFile, kinds: list[ice.IcebergType]) -> bool:
    """Whether all bounds in a manifest's row are values of its partition's types."""
    for kind, summary in zip(kinds, manifest.partitions or [], strict=False):
        for bound in (summary.lower_bound, summary.upper_bound):
            if bound is not None and not is_sound(kind, bound):
                return False
    return True
