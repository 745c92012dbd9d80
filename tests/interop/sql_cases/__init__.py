"""The behaviours of Iceberg's Spark suites, as data."""

from __future__ import annotations

from typing import Final

from tests.interop.sql_cases import changes, evolution, merge, others, procedures, reads, tables, writes
from tests.interop.sql_cases.case import Suite

SUITES: Final[tuple[Suite, ...]] = (
    *merge.SUITES,
    *evolution.SUITES,
    *changes.SUITES,
    *writes.SUITES,
    *tables.SUITES,
    *reads.SUITES,
    *procedures.SUITES,
    *others.SUITES,
)
