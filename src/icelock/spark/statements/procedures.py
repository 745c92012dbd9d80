"""``CALL catalog.system.procedure(...)``, with the names and arguments of Java's procedures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from icelock.spark.statements.asked import Answer, Asked, StatementSession


def list_procedures(_session: StatementSession, _asked: Asked) -> list[str]:
    """Return the names of the procedures."""
    return []


ANSWERS: Final[Mapping[str, Answer]] = {"list procedures": list_procedures}
