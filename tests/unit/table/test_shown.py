"""Results as text and as HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import icelock
from icelock.maintenance import Leftovers, Optimized, OptimizeStep, Outcome, audit
from icelock.table.maintenance.compaction.compact import Compacted
from icelock.table.maintenance.removal.expire import Expired
from tests.helpers.places import ROOT

HOSTILE = "<script>alert(1)</script>\x1b[2J"
KEY = "5a" * 16
SETTINGS = {"encryption.kms-type": "memory", "kms.memory.keys.lake-key": KEY, "table-default.encryption.key-id": "lake-key"}


@pytest.fixture
def catalog(tmp_path: Path) -> icelock.Catalog:
    made = icelock.load_catalog("lake", type="in-memory", warehouse=f"file://{tmp_path}", **SETTINGS)
    made.create_namespace("shop")
    return made


@pytest.fixture
def table(catalog: icelock.Catalog) -> icelock.Table:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, HOSTILE, StringType(), doc=HOSTILE))
    made = catalog.create_table(("shop", "<script>"), schema, properties={"owner": HOSTILE})
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field(HOSTILE, pa.string())]
    made.append(pa.table({"id": [1, 2], HOSTILE: ["a", "b"]}, schema=pa.schema(fields)), snapshot_properties={"total-records": HOSTILE})
    made.manage_snapshots().create_tag(made.snapshots()[0].snapshot_id, HOSTILE).commit()
    return made


def everything(catalog: icelock.Catalog, table: icelock.Table) -> list[Any]:
    scans = [table.scan(selected_fields=(HOSTILE,)), table.scan().use_ref(HOSTILE), table.incremental_append_scan(), table.changes()]
    static = icelock.StaticTable.from_metadata(table.metadata_location)
    results = [audit(catalog, "shop.<script>"), table.maintenance.expire_snapshots().commit()]
    return [catalog, table, static, table.transaction(), table.snapshots(), table.maintenance, *scans, *results]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert not attrs
        self.opened.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_no_name_from_storage_is_a_tag_or_steers_a_terminal(catalog, table):
    for one in everything(catalog, table):
        html = Tags()
        if hasattr(one, "_repr_html_"):
            html.feed(one._repr_html_())
        assert {*html.opened} <= {"table", "caption", "tr", "th", "td"}, type(one)
        for text in (repr(one), html.text):
            assert all(char.isprintable() or char == "\n" for char in text), type(one)
            assert KEY not in text
    html = Tags()
    html.feed(table._repr_html_())
    assert r"<script>alert(1)</script>\x1b[2J" in html.text


def test_a_table_says_its_name_key_place_snapshot_and_columns(catalog, table):
    title, *facts = repr(table).splitlines()
    assert title == "Table lake.shop.<script>"
    assert [line.split(":")[0].strip() for line in facts] == ["master key", "location", "snapshot", "columns"]
    snapshot = table.current_snapshot().snapshot_id
    assert f"snapshot: {snapshot} 20" in facts[2]
    assert "append" in facts[2]
    assert facts[3].startswith("  columns: id long not null, ")
    plain = catalog.create_table("shop.p", table.schema(), properties={"icelock.plain": "true", "format-version": "2"})
    assert "master key: none, the table is plain (version 2)" in repr(plain)
    assert repr(table.scan("id > 1", limit=3)).splitlines()[0] == "DataScan of lake.shop.<script>"
    assert "warehouse: file://" in repr(catalog)


def test_a_wide_table_says_how_many_columns_it_has(catalog):
    schema = Schema(*(NestedField(number, f"c{number}", LongType()) for number in range(1, 1001)))
    table = catalog.create_table("shop.wide", schema)
    assert ", ... 1000 in all" in repr(table)
    assert len(repr(table).splitlines()) < 20
    assert table._repr_html_().count("<tr>") < 80


def test_a_scan_shows_itself_without_files_or_key_service(table):
    for path in Path(table.location().removeprefix("file://")).rglob("*.*"):
        path.unlink()
    scan = table.scan("id > 1")
    assert "columns: all" in repr(scan)
    assert "<td>" in scan._repr_html_()
    assert "Table" in table._repr_html_()


def test_completion_offers_what_pyiceberg_has_or_the_pages_name(catalog, table):
    pages = "\n".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    for one in (catalog, table, table.scan(), table.transaction(), table.changes(), table.maintenance):
        theirs = {name for kind in type(one).__mro__ if kind.__module__.startswith("pyiceberg") for name in vars(kind)}
        theirs |= {"name", "properties"} | ({*vars(one)} if isinstance(one, icelock.table.read.scan.DataScan) else set())
        ours = {name for name in dir(one) if not name.startswith("_")} - theirs
        unknown = {name for name in ours if not re.search(rf"\b{name}\b", pages)}
        assert not unknown, (type(one).__name__, unknown)
    hidden = {"pins", "turn", "check_create", "encryption", "identifier_to_tuple"} & {*dir(catalog)}
    assert not hidden | ({"io_for", "advance", "storage", "to_daft"} & {*dir(table)})
    assert {"append", "scan", "changes", "maintenance", "upsert"} <= {*dir(table)}
    assert {"load_table", "create_table", "list_tables"} <= {*dir(catalog)}


def test_repr_says_what_was_done_in_one_line() -> None:
    assert repr(Compacted()) == "Compacted()"
    assert repr(Compacted(rewritten_files=6, added_files=1, snapshots=(7,))) == "Compacted(rewritten_files=6, added_files=1, snapshots=(7))"
    many = tuple(f"f{number}" for number in range(1_000))
    assert repr(Expired(snapshots=(1, 2), deleted=1_000, files=many)) == (
        "Expired(snapshots=(1, 2), deleted=1000, files=('f0', 'f1', 'f2', ... 1000 in all))"
    )
    assert repr(Leftovers(files=(), keys=())) == "Leftovers()"


def test_html_has_the_steps_and_takes_no_text_for_tags() -> None:
    step = OptimizeStep(name="compact", outcome=Outcome.FAILED, why="<b>no</b>", seconds=1.25, result=Compacted(groups=2))
    html = Optimized(table="db.<t>", steps=(step,), dry_run=True)._repr_html_()
    assert "<th>table</th><td>&#x27;db.&lt;t&gt;&#x27;</td>" in html
    assert "<th>outcome</th><td>failed</td>" in html
    assert "&lt;b&gt;no&lt;/b&gt;" in html
    assert "<th>groups</th><td>2</td>" in html
    assert html.count("<table>") == html.count("</table>") == 3
