"""What a catalog shows of itself, and which of its names are for icelock's own modules."""

from __future__ import annotations

from typing import ClassVar

from pyiceberg.catalog import WAREHOUSE_LOCATION

from icelock import properties as names
from icelock.shown import Described, Facts


class DescribedCatalog(Described):
    """A catalog: its name, warehouse, key service and the master key of new tables; no uri, as a password may be in it."""

    # PyIceberg's helpers for names, and what SQL's catalogs have beside, are in it too.
    _inside: ClassVar[frozenset[str]] = frozenset(
        {
            "check_converts",
            "check_create",
            "check_current",
            "check_register",
            "check_replaces_snapshots",
            "commit_conversion",
            "commit_table",
            "commit_undo",
            "create_tables",
            "destroy_tables",
            "encryption",
            "engine",
            "free_name",
            "identifier_to_database",
            "identifier_to_database_and_table",
            "identifier_to_tuple",
            "kept",
            "load_from_metadata",
            "metadata_cache",
            "names_for_any",
            "namespace_from",
            "namespace_to_string",
            "new_metadata",
            "new_tables",
            "one_process",
            "pins",
            "read_metadata_file",
            "reads_metadata_files",
            "resume_create_transaction",
            "stage_first_commit",
            "stage_new_table",
            "supports_server_side_planning",
            "table_defaults",
            "table_name_from",
            "table_of",
            "turn",
            "warehouse_is_place",
        }
    )
    name: str
    properties: dict[str, str]

    def _title(self) -> str:
        return f"{type(self).__name__} {self.name}"

    def _facts(self) -> Facts:
        place = str(self.properties.get(WAREHOUSE_LOCATION, ""))
        yield "warehouse", "" if "@" in place else place  # what stands before it may be a password
        yield "key service", self.properties.get(names.KMS_TYPE) or self.properties.get(names.KMS_IMPL)
        yield "master key of new tables", self.properties.get(f"table-default.{names.ENCRYPTION_KEY_ID}")
