"""Files all of whose rows match a filter, as metadata alone proves: a delete removes them unread, so nothing may be guessed.

The proof is by counts, bounds and partition values. PyIceberg's strict evaluator takes a missing count for 0, so a null or a NaN would be
deleted with its file, and it fails on fields of structs. Here a missing count proves nothing, and nothing is proved of fields of structs
(as Java ``StrictMetricsEvaluator``).

Not here: what a filter means (``plan.filters.exact``), which files may match (``plan.planner``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from pyiceberg import expressions as ex
from pyiceberg.expressions.visitors import _StrictMetricsEvaluationVisitor, bind, visit
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType

from icelock.metadata.sound_bounds import SoundFile, types_of

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask

_POSITIVE: Final = (
    ex.AlwaysFalse,
    ex.AlwaysTrue,
    ex.EqualTo,
    ex.GreaterThan,
    ex.GreaterThanOrEqual,
    ex.In,
    ex.IsNull,
    ex.LessThan,
    ex.LessThanOrEqual,
    ex.NotNull,
    ex.StartsWith,
)


def null_safe(expression: ex.BooleanExpression) -> bool:
    """Whether PyIceberg's evaluators treat nulls as SQL does: the filter has no negative predicate."""
    if isinstance(expression, (ex.And, ex.Or)):
        return null_safe(expression.left) and null_safe(expression.right)
    return isinstance(expression, _POSITIVE)


def split_by_coverage(
    planned: Iterable[FileScanTask], schema: Schema, exact: ex.BooleanExpression
) -> tuple[list[FileScanTask], list[FileScanTask]]:
    """Return the files all of whose rows match a filter, as metadata proves, and the others; the arguments are those of ``WholeFiles``."""
    known = WholeFiles(schema, exact)
    looked_at = [(known.certain(task), task) for task in planned]
    return [task for certain, task in looked_at if certain], [task for certain, task in looked_at if not certain]


class WholeFiles:
    """Which planned files match the filter as a whole."""

    def __init__(self, schema: Schema, exact: ex.BooleanExpression) -> None:
        """Bind the filter, an ``exact_filter`` on the columns of ``schema``."""
        self._struct = schema.as_struct()
        self._type_of = types_of(schema)
        self._claims = null_safe(exact)
        self._bound = bind(schema, exact, case_sensitive=True) if self._claims else exact

    def certain(self, planned: FileScanTask) -> bool:
        """Whether all rows of a file certainly match."""
        return self._claims and (planned.residual == ex.AlwaysTrue() or self._by_metrics(planned.file))

    def _by_metrics(self, file: DataFile) -> bool:
        if file.record_count <= 0:
            return file.record_count == 0
        sound: Any = SoundFile(file, self._type_of)
        return visit(self._bound, _Strict(self._struct, sound))


class _Strict(_StrictMetricsEvaluationVisitor):
    def _can_contain_nulls(self, field_id: int) -> bool:
        field = self.struct.field(field_id)
        if field is None:
            return True  # a field of a struct, which may be null itself
        count = self.null_counts.get(field_id)
        return not field.required if count is None else count > 0

    def _can_contain_nans(self, field_id: int) -> bool:
        field = self.struct.field(field_id)
        if field is None or not isinstance(field.field_type, (FloatType, DoubleType)):
            return field is None
        return self.nan_counts.get(field_id) != 0
