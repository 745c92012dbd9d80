"""All features of the matrix, in the order of the page."""

from __future__ import annotations

from typing import Final

from tests.interop import features_files, features_layout, features_rows, features_schema
from tests.interop.matrix import Feature

_GROUPS: Final = (
    "Types",
    "Keys",
    "Parquet",
    "Avro",
    "Partitions",
    "Schema evolution",
    "Row-level deletes",
    "Updates",
    "Metadata columns",
    "Time travel",
    "Metadata",
    "Plain files",
    "Maintenance",
)
_ALL: Final = (*features_layout.FEATURES, *features_schema.FEATURES, *features_rows.FEATURES, *features_files.FEATURES)
FEATURES: Final[tuple[Feature, ...]] = tuple(sorted(_ALL, key=lambda feature: _GROUPS.index(feature.group)))
