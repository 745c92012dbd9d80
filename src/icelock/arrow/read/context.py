"""``ReadContext``: what all tasks of one scan share, with its ``DeleteCache``: delete files that apply to many data files, decoded once.

Not here: reading a task (``arrow.read.task``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, TypeVar

import pyarrow as pa
from cachetools import LRUCache
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from icelock.arrow.read.row_filter import FilterPlan
from icelock.arrow.types import output_schema
from icelock.single_flight import SingleFlight

MOST_BYTES: Final = 256 << 20

T = TypeVar("T")


class DeleteCache:
    """Decoded delete files of one scan, shared by its threads; ``most_bytes`` bounds what is kept between uses.

    Keys hold a file's path and its key metadata, so that a file opened with one key is not handed out for another.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: SingleFlight[Hashable, tuple[Any, int]] = SingleFlight(LRUCache(most_bytes, getsizeof=lambda loaded: loaded[1]))

    def __reduce__(self) -> tuple[type[DeleteCache], tuple[int]]:
        """Pickle as an empty cache: what was decoded stays in its process."""
        return DeleteCache, (self._most_bytes,)

    def get(self, key: Hashable, load: Callable[[], tuple[T, int]]) -> T:
        """Return the value of ``key``; ``load`` gives it with its size in bytes.

        Raises:
            Exception: what ``load`` raised; nothing is kept then.
        """
        value: T = self._kept.get(key, load)[0]
        return value


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReadContext:
    """What all tasks of one scan share.

    ``schema`` is what comes out, with metadata columns if wanted; ``row_filter`` (bound or not) is about ``table_schema``, ``io`` is
    the storage's own FileIO, and ``allow_plaintext`` says whether files without key metadata may be read. ``arrow_schema`` is the
    schema of every batch. ``delete_cache`` keeps decoded delete files; it may be shared by contexts of one scan only.

    Raises:
        ValueError: the filter names a column that ``table_schema`` lacks (PyIceberg's error).
    """

    schema: Schema
    table_schema: Schema
    row_filter: BooleanExpression = dataclasses.field(default_factory=AlwaysTrue)
    case_sensitive: bool = True
    specs: Mapping[int, PartitionSpec]
    name_mapping: NameMapping | None = None
    io: FileIO
    allow_plaintext: bool
    delete_cache: DeleteCache = dataclasses.field(default_factory=DeleteCache, repr=False, compare=False)
    filter_plan: FilterPlan = dataclasses.field(init=False, repr=False, compare=False)
    arrow_schema: pa.Schema = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plan = FilterPlan.make(self.row_filter, self.table_schema, case_sensitive=self.case_sensitive)
        object.__setattr__(self, "filter_plan", plan)
        object.__setattr__(self, "arrow_schema", output_schema(self.schema))

    @property
    def bound_filter(self) -> BooleanExpression:
        """The filter, bound to ``table_schema``."""
        return self.filter_plan.expression
