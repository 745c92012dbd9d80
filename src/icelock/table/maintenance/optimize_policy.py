"""What ``table.maintenance.optimize`` may do, and from when on: the table's properties ``icelock.optimize.*``, and options of a call.

They lie on storage, as all table properties: none of them makes rows readable, and leftovers younger than a day are never deleted, whatever
they say, since a writer's uncommitted files look the same.

Not here: the names (``icelock.properties``), the steps (``table.maintenance.optimize_steps``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self

from icelock import properties as names
from icelock.errors import PolicyError
from icelock.metadata.json_values import whole_number
from icelock.nearest import hint
from icelock.table.maintenance.compaction.compact_options import CompactOptions
from icelock.table.moments import SAFE_AGE, parse_span

_LEAST_AGE: Final = timedelta(days=1)
_OF_COMPACT: Final = ("target-file-size-bytes", "min-input-files")
_RATIO: Final = 0.1
_MIN_MANIFESTS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizePolicy:
    """The policy for one table.

    Args:
        off: names of steps that are not done.
        compact_options: options of the compaction.
        sort_by: order of the rows that are compacted; None: as they are.
        z_order_by: columns of their Z-order instead.
        deleted_rows: from this part of all rows on, deleted rows are taken out of the data.
        delete_files: from as many delete files that are no vectors on, as a part of the data files, they become vectors.
        min_manifests: from as many manifests less on, manifests are rewritten.
        leftovers_age: leftovers of this age are deleted.
    """

    off: frozenset[str] = frozenset()
    compact_options: Mapping[str, str]
    sort_by: str | None = None
    z_order_by: tuple[str, ...] = ()
    deleted_rows: float = _RATIO
    delete_files: float = _RATIO
    min_manifests: int = _MIN_MANIFESTS
    leftovers_age: timedelta = SAFE_AGE

    @classmethod
    def of(cls, properties: Mapping[str, str], options: Mapping[str, str] | None = None) -> Self:
        """Return the policy of a table; ``options`` are names without ``icelock.optimize.``, and win.

        Raises:
            PolicyError: an unknown name, or a value that is none; says the nearest name, or what it may be.
        """
        for name in options or {}:
            _check_option(name)
        given = names.below(properties, names.OPTIMIZE_PREFIX) | {name: str(value) for name, value in (options or {}).items()}
        given = {names.OPTIMIZE_PREFIX + name: value.strip() for name, value in given.items()}
        names.check_table_properties(given)
        columns = given.get(names.OPTIMIZE_PREFIX + "z-order-by", "")
        policy = cls(
            off=frozenset(step for step in names.OPTIMIZE_STEPS if not names.flag(given, names.OPTIMIZE_PREFIX + step, default=True)),
            compact_options={name: given[full] for name in _OF_COMPACT if (full := names.OPTIMIZE_PREFIX + name) in given},
            sort_by=given.get(names.OPTIMIZE_PREFIX + "sort-by") or None,
            z_order_by=tuple(column.strip() for column in columns.split(",") if column.strip()),
            deleted_rows=_ratio(given, "deleted-rows-ratio"),
            delete_files=_ratio(given, "delete-files-ratio"),
            min_manifests=_at_least_one(given, "min-manifests", _MIN_MANIFESTS),
            leftovers_age=_age(given),
        )
        CompactOptions.parse(policy.compact_options, {})
        if policy.sort_by and policy.z_order_by:
            raise PolicyError(f"{names.OPTIMIZE_PREFIX}sort-by and {names.OPTIMIZE_PREFIX}z-order-by exclude each other: leave one out")
        return policy


def _check_option(name: str) -> None:
    known = (*names.OPTIMIZE_STEPS, *names.OPTIMIZE_SETTINGS)
    if name not in known:
        raise PolicyError(f"optimize has no option {name!r}; {hint(name, known, otherwise='it has')}")


def _ratio(given: Mapping[str, str], name: str) -> float:
    text = given.get(names.OPTIMIZE_PREFIX + name, str(_RATIO))
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise PolicyError(f"{names.OPTIMIZE_PREFIX}{name} is {text!r}; it must be above 0 and at most 1")
    return value


def _at_least_one(given: Mapping[str, str], name: str, default: int) -> int:
    full = names.OPTIMIZE_PREFIX + name
    value = whole_number(given, full, default)
    if value is None or value < 1:
        raise PolicyError(f"{full} is {given[full]!r}; it must be a whole number of at least 1")
    return value


def _age(given: Mapping[str, str]) -> timedelta:
    name = names.OPTIMIZE_PREFIX + "leftovers-older-than"
    if name not in given:
        return SAFE_AGE
    age = parse_span(given[name], name=name)
    if age < _LEAST_AGE:
        raise PolicyError(
            f"{name} is {given[name]!r}; it must be at least one day, such as 3d or 36h: files of writers at work look left over"
        )
    return age
