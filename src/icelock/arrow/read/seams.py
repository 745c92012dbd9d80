"""Every private name of PyIceberg that the Arrow engine leans on, in one place.

PyIceberg is held to one minor version for these (docs/adr/0003); a test states each of them, so a new version that moves one
fails with its name. Nothing else below ``icelock.arrow`` imports a private name of PyIceberg.
"""

from __future__ import annotations

# Answers "may rows match?" from counts and bounds, with Iceberg's rules for null and NaN. It reads record_count, value_counts,
# null_value_counts, nan_value_counts, lower_bounds and upper_bounds of the object given, which need not be a DataFile.
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluationVisitor as InclusiveMetricsVisitor

__all__ = ["InclusiveMetricsVisitor"]
