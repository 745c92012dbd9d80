"""All recipes but Spark's."""

from __future__ import annotations

from tests.operations import op_catalog, op_hive, op_table, op_transaction

RECIPES = [*op_table.RECIPES, *op_table.STATIC, *op_transaction.RECIPES, *op_catalog.RECIPES, *op_hive.RECIPES]
