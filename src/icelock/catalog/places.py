"""Places that users give a catalog for new files: its warehouse, and locations of namespaces and tables.

Not here: what a place may be (``io.given_location``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyiceberg.catalog import WAREHOUSE_LOCATION, MetastoreCatalog
from pyiceberg.io import PY_IO_IMPL

from icelock.errors import IcelockError, PolicyError
from icelock.io.given_location import check_given_location

if TYPE_CHECKING:
    from collections.abc import Mapping


class GivenPlaces(MetastoreCatalog):
    """The part of a catalog that looks at places."""

    # A REST server knows its warehouses by name.
    warehouse_is_place: ClassVar[bool] = True

    def _check_given_location(self, location: str, *, what: str) -> None:
        """Check a place that was given for new files (``io.given_location``).

        Raises:
            PolicyError: it means no one folder, or no storage that is known.
        """
        check_given_location(location, what=what, any_scheme=bool(self.properties.get(PY_IO_IMPL)))

    def _check_warehouse(self, name: str, properties: Mapping[str, str]) -> None:
        """Check the warehouse of a catalog that is being made; it may have none.

        Raises:
            PolicyError: likewise.
        """
        if self.warehouse_is_place and properties.get(WAREHOUSE_LOCATION):
            what = f"{WAREHOUSE_LOCATION} of catalog {name}"
            check_given_location(properties[WAREHOUSE_LOCATION], what=what, any_scheme=bool(properties.get(PY_IO_IMPL)))

    def _resolve_table_location(self, location: str | None, database_name: str, table_name: str) -> str:
        name = f"{database_name}.{table_name}"
        try:
            found: str = super()._resolve_table_location(location, database_name, table_name)
        except IcelockError:
            raise
        except ValueError as e:
            raise PolicyError(
                f"table {name} has no place: catalog {self.name} has no warehouse; set warehouse to a place such as "
                "file:///data/warehouse or s3://bucket/warehouse, or give create_table a location"
            ) from e
        self._check_given_location(found, what=f"location of table {name}")
        return found
