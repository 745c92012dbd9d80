"""A recipe: how one public method is used rightly on an encrypted table, and what has to come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from icelock.errors import PolicyError

Use = Callable[[Any], object]


class Outcome(Enum):
    """What a method does to storage and catalog."""

    READS = "reads"  # nothing: no file, no commit
    ENCRYPTED = "encrypted"  # a commit with new files, all of them encrypted
    METADATA = "metadata"  # a commit that makes a metadata.json and no other file
    REMOVES = "removes"  # files go, and none comes but a metadata.json
    CATALOG = "catalog"  # a change in the catalog, and no new file
    PART = "part"  # a step of other operations: new files are encrypted, and nothing is committed
    REFUSED = "refused"  # a typed error, and nothing was changed


WRITES = (Outcome.ENCRYPTED, Outcome.METADATA, Outcome.REMOVES, Outcome.CATALOG, Outcome.PART)


@dataclass(frozen=True)
class Recipe:
    """``name`` is Class.method, or Class.method/variant."""

    name: str
    use: Use
    outcome: Outcome
    error: type[Exception] | tuple[type[Exception], ...] = PolicyError

    @property
    def method(self) -> str:
        return self.name.partition("/")[0]


def recipes(owner: str, outcome: Outcome, uses: Mapping[str, Use], error: type[Exception] = PolicyError) -> list[Recipe]:
    """Return recipes of one class with one outcome."""
    return [Recipe(f"{owner}.{name}", use, outcome, error) for name, use in uses.items()]
