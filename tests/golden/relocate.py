"""Read the golden tables where the clone lies, although every path inside them is absolute.

``data/TABLE`` holds one table written by Java Iceberg 1.12.0: ``table/`` (its files), ``table.json`` (location, current
metadata file, keys) and ``expected.json`` (rows). Java wrote it at ``file:/tmp/iceberg-golden/TABLE``, and metadata, manifest
lists and manifests say so. ``RelocatingFileIO`` maps that prefix to ``<golden.root>/TABLE/table`` and nothing else, so that
locations in errors and scan tasks stay Java's.

Not here: any decryption. This FileIO is the raw one, below icelock.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

WRITTEN_AT: Final = "file:/tmp/iceberg-golden/"
DATA: Final = Path(__file__).parent / "data"
GOLDEN_ROOT: Final = "golden.root"
TABLES: Final = tuple(sorted(path.name for path in DATA.iterdir() if path.is_dir()))


class RelocatingFileIO(PyArrowFileIO):
    """PyIceberg's FileIO over a folder of golden tables; the property ``golden.root`` names it (default: ``data`` beside this file).

    The files under ``data`` itself are never written or deleted (PermissionError): copy them first with ``copy_table``.
    """

    @property
    def root(self) -> Path:
        return Path(self.properties.get(GOLDEN_ROOT, str(DATA)))

    def local_path(self, location: str) -> Path:
        """Return the file that stands for a location; a location is text, so ``%2F`` in it stays as it is."""
        if not location.startswith(WRITTEN_AT):
            return Path(location.removeprefix("file://").removeprefix("file:"))
        table, _, rest = location.removeprefix(WRITTEN_AT).partition("/")
        return self.root / table / "table" / rest

    def new_input(self, location: str) -> PyArrowFile:
        return PyArrowFile(location=location, path=str(self.local_path(location)), fs=self.fs_by_scheme("file", ""))

    def new_output(self, location: str) -> PyArrowFile:
        self._guard(location)
        self.local_path(location).parent.mkdir(parents=True, exist_ok=True)
        return self.new_input(location)

    def delete(self, location: str | Any) -> None:
        name = location if isinstance(location, str) else location.location
        self._guard(name)
        self.local_path(name).unlink()

    def _guard(self, location: str) -> None:
        if self.local_path(location).is_relative_to(DATA):
            msg = f"{location} is a golden file: copy the table before changing it"
            raise PermissionError(msg)


def table_info(table: str) -> dict[str, Any]:
    """Return ``table.json``: location, metadata_location, kms_keys_utf8, properties, snapshots and more."""
    info: dict[str, Any] = json.loads((DATA / table / "table.json").read_text(encoding="utf-8"))
    return info


def expected(table: str) -> dict[str, Any]:
    """Return ``expected.json``: schema, rows, at_snapshot, refs, row_lineage."""
    rows: dict[str, Any] = json.loads((DATA / table / "expected.json").read_text(encoding="utf-8"))
    return rows


def metadata_location(table: str) -> str:
    """Return the location of the current metadata file as Java wrote it (read it through ``RelocatingFileIO``)."""
    return str(table_info(table)["metadata_location"])


def metadata_path(table: str, root: Path = DATA) -> Path:
    """Return the path of the current metadata file below ``root``."""
    return RelocatingFileIO({GOLDEN_ROOT: str(root)}).local_path(metadata_location(table))


def catalog_properties(table: str, root: Path = DATA) -> dict[str, str]:
    """Return the properties that open a golden table: this FileIO and the master keys of Java's test KMS."""
    keys: dict[str, str] = table_info(table)["kms_keys_utf8"]
    return {
        "py-io-impl": f"{__name__}.RelocatingFileIO",
        GOLDEN_ROOT: str(root),
        "encryption.kms-type": "memory",
        **{f"kms.memory.keys.{name}": key.encode().hex() for name, key in keys.items()},
    }


def copy_table(table: str, root: Path) -> Path:
    """Copy one golden table below ``root`` (use it as ``golden.root``) and return the copy's ``table`` folder."""
    source = DATA / table / "table"
    target = root / table / "table"
    for path in source.rglob("*"):
        if path.is_file():
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return target
