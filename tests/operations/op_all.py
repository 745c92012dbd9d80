"""All recipes but Spark's."""

from __future__ import annotations

import op_catalog
import op_hive
import op_table
import op_transaction

RECIPES = [*op_table.RECIPES, *op_table.STATIC, *op_transaction.RECIPES, *op_catalog.RECIPES, *op_hive.RECIPES]
