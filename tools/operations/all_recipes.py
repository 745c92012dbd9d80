"""All recipes but Spark's."""

from __future__ import annotations

from tools.operations import catalog, hive, table, transaction

RECIPES = [*table.RECIPES, *table.STATIC, *transaction.RECIPES, *catalog.RECIPES, *hive.RECIPES]
