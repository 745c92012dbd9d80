"""Deletes on tables that Java wrote: its deletion vectors, equality deletes and lineage go on under ours."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import icelock
from tests.golden import relocate
from tests.golden.rows import rows, sorted_json
from tests.helpers.turns import todays
from tests.verify.verify_table import verify

HERE = Path(__file__).parent / "deletes"
LINEAGE = ("id", "_row_id", "_last_updated_sequence_number")
DELETES: dict[str, tuple[str, Callable[[dict[str, Any]], bool]]] = {
    "even": ("id in (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24)", lambda r: r["id"] in range(0, 26, 2)),
    "upper": ("id > 11", lambda r: r["id"] > 11),
}
TABLES = ("mor_dv", "maint", "cow_update", "part_parquet", "evolve", "avro_data", "key32", "eq_parquet", "eq_avro")
CELLS = [*itertools.product(TABLES, ("copy-on-write", "merge-on-read"), DELETES)]


def copied(name: str, root: Path) -> str:
    """Copy a Java table below ``root``; return its metadata file's location."""
    if (HERE / name).is_dir():
        shutil.copytree(HERE / name, root / name)
        (metadata,) = (root / name / "table" / "metadata").glob("*.metadata.json")
        return f"{relocate.WRITTEN_AT}{name}/metadata/{metadata.name}"
    relocate.copy_table(name, root)
    return relocate.metadata_location(name)


def expected(name: str) -> dict[str, Any]:
    folder = HERE if (HERE / name).is_dir() else relocate.DATA
    found: dict[str, Any] = json.loads((folder / name / "expected.json").read_text(encoding="utf-8"))
    return found


def taken_over(name: str, root: Path) -> Any:
    """The copy as a table of a catalog of ours."""
    catalog = icelock.load_catalog(
        "ours",
        type="sql",
        uri=f"sqlite:///{root}/catalog.db",
        warehouse=str(root),
        **{
            "py-io-impl": "tests.golden.relocate.RelocatingFileIO",
            relocate.GOLDEN_ROOT: str(root),
            "encryption.kms-type": "memory",
            "kms.memory.keys.keyA": b"0123456789012345".hex(),
        },
    )
    catalog.create_namespace("db")
    location = copied(name, root)
    catalog.register_table(f"db.{name}", location)
    return catalog.load_table(f"db.{name}")


def check_bytes(table: Any, name: str, root: Path) -> None:
    path = relocate.RelocatingFileIO({relocate.GOLDEN_ROOT: str(root)}).local_path(table.metadata_location)
    verify(path, {"keyA": [b"0123456789012345"]}, {f"{relocate.WRITTEN_AT}{name}": str(root / name / "table")})


def lineage(table: Any) -> dict[int, Any]:
    return {r["id"]: tuple(r.values()) for r in table.scan(selected_fields=LINEAGE).to_arrow().to_pylist()}


@pytest.mark.turns(2)
@pytest.mark.parametrize(("name", "mode", "which"), todays("deletes on Java's tables", CELLS, 3))
def test_a_delete_leaves_java_s_other_rows_with_their_lineage(tmp_path: Path, name: str, mode: str, which: str) -> None:
    table, java = taken_over(name, tmp_path), expected(name)
    with table.transaction() as tx:
        tx.set_properties({"write.delete.mode": mode})
    before = lineage(table)
    text, matches = DELETES[which]
    table.delete(text)
    left = [row for row in java["rows"] if not matches(row)]
    assert rows(table.scan().to_arrow()) == sorted_json(left)
    assert lineage(table) == {row["id"]: before[row["id"]] for row in left}
    for snapshot_id, wanted in java["at_snapshot"].items():
        at = wanted["rows"] if isinstance(wanted, dict) else wanted
        assert table.scan(snapshot_id=int(snapshot_id)).count() == len(at)
    check_bytes(table, name, tmp_path)


@pytest.mark.parametrize("name", ["eq_parquet", "eq_avro"])
def test_a_rewrite_applies_equality_deletes_and_a_vector_leaves_them(tmp_path: Path, name: str) -> None:
    """Of each file that is cut, copy-on-write keeps live rows only; a vector has the positions of the filter and no others."""
    java = expected(name)
    for mode in ("copy-on-write", "merge-on-read"):
        root = tmp_path / mode
        root.mkdir()
        table = taken_over(name, root)
        with table.transaction() as tx:
            tx.set_properties({"write.delete.mode": mode})
        (some,) = [row["id"] for row in java["rows"]][:1]
        table.delete(f"id = {some}")
        assert rows(table.scan().to_arrow()) == sorted_json([row for row in java["rows"] if row["id"] != some])
        found = table.current_snapshot().summary
        if mode == "copy-on-write":
            removed, added = int(found["deleted-records"]), int(found["added-records"])
            assert removed - added >= 1
        else:
            assert found["added-dvs"] == "1"
        check_bytes(table, name, root)
