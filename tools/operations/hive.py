"""The Hive catalog's own methods: those of the SQL catalog's recipes that it does another way, on a metastore."""

from __future__ import annotations

from typing import Any

from hive_metastore.ttypes import ShowLocksRequest
from pyiceberg.catalog.hive import _HiveClient

from tests.lakes.hive import HiveLake
from tools.operations.catalog import RECIPES as SQL
from tools.operations.place import Place
from tools.operations.recipe import Outcome, Recipe
from tools.operations.surface import CLASSES, methods_of


class HivePlace(Place):
    """A table in a database of a metastore."""

    def __init__(self, lake: HiveLake, namespace: str | None = None, *, metadata: str | None = None) -> None:
        super().__init__(lake, namespace or lake.database, metadata=metadata)

    def _catalog_rows(self) -> str:
        with _HiveClient(self.lake.uri) as client:  # type: ignore[attr-defined]  # a HiveLake
            databases = sorted(client.get_all_databases())
            rows = [client.get_table(self.namespace, name) for name in sorted(client.get_all_tables(self.namespace))]
            locks = client.show_locks(ShowLocksRequest()).locks
            return repr((databases, client.get_database(self.namespace).parameters, [(r.tableName, r.parameters) for r in rows], locks))


def of_hive(recipe: Recipe) -> Recipe:
    return Recipe(recipe.name.replace("SqlCatalog", "HiveCatalog"), recipe.use, recipe.outcome, recipe.error)


def locked(place: Any) -> None:
    """Take the table's lock and give it back."""
    catalog = place.catalog
    database, name = place.name.split(".")
    with catalog._connected() as client, catalog.table_lock(client, database, name):
        pass


def persisted(place: Any) -> None:
    """Give the metastore the row that it has."""
    catalog, table = place.catalog, place.table
    staged = catalog._staged(*table.name(), table.metadata, table.metadata_location)
    with catalog._connected() as client:
        catalog.persist(client, catalog._convert_iceberg_into_hive(staged), staged, replaces=None, ours=False)


_HIVE, _SQL = CLASSES["HiveCatalog"], CLASSES["SqlCatalog"]
OWN = {name for name in methods_of(_HIVE) if getattr(_SQL, name, None) is not getattr(_HIVE, name)}
RECIPES = [
    *(of_hive(recipe) for recipe in SQL if recipe.method.partition(".")[2] in OWN and recipe.name.startswith("SqlCatalog.")),
    Recipe("HiveCatalog.table_lock", locked, Outcome.READS),
    Recipe("HiveCatalog.persist", persisted, Outcome.READS),
]
