"""The Hive catalog's own methods: those of the SQL catalog's recipes that it does another way, on a metastore."""

from __future__ import annotations

from hive_metastore.ttypes import ShowLocksRequest
from pyiceberg.catalog.hive import _HiveClient

from tests.lakes.hive import HiveLake
from tools.operations.catalog import RECIPES as SQL
from tools.operations.place import Place
from tools.operations.recipe import Recipe
from tools.operations.surface import BY_STORE, CLASSES, methods_of


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


_HIVE, _SQL = CLASSES["HiveCatalog"], CLASSES["SqlCatalog"]
OWN = BY_STORE["HiveCatalog"] | {name for name in methods_of(_HIVE) if getattr(_SQL, name, None) is not getattr(_HIVE, name)}
RECIPES = [
    *(of_hive(recipe) for recipe in SQL if recipe.method.partition(".")[2] in OWN and recipe.name.startswith("SqlCatalog.")),
]
