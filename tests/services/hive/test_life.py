"""A table's life in a real metastore: every step, and what the row says after it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog as iceberg_load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimestampNanoType

import icelock
from icelock.catalog.hive.catalog import HiveCatalog
from icelock.errors import CommitError, KeyUnavailableError, PolicyError
from icelock.table.table import Table
from tests.helpers.tables import ids, local
from tests.lakes.hive import HiveLake, sha256
from tests.lakes.sqlite import KEYED, people

pytestmark = pytest.mark.hive

# What a row of an encrypted table may have: Iceberg's names, the one property that PyIceberg sets, and Hive's own.
OURS = {"EXTERNAL", "table_type", "metadata_location", "previous_metadata_location", "encryption.key-id", "metadata_hash"}
PUSHED = {"write.parquet.compression-codec"}
HIVES = {"transient_lastDdlTime", "totalSize", "numFiles"}


def check_hash(hive: HiveLake, table: str = "t") -> str:
    """The row's hash is that of the file's bytes: the file is canonical."""
    parameters = hive.parameters(table)
    assert parameters["metadata_hash"] == sha256(local(parameters["metadata_location"]).read_bytes())
    return parameters["metadata_hash"]


def test_the_catalog_type_follows_from_the_uri(hive: HiveLake) -> None:
    properties = {key: value for key, value in hive.properties().items() if key != "type"}
    assert isinstance(icelock.load_catalog("any", **properties), HiveCatalog)


def test_pyiceberg_loads_the_catalog_by_its_class(hive: HiveLake) -> None:
    hive.make(rows=3)
    properties = {"py-catalog-impl": "icelock.catalog.hive.HiveCatalog", **{k: v for k, v in hive.properties().items() if k != "type"}}
    assert ids(iceberg_load_catalog("any", **properties).load_table(hive.name())) == [0, 1, 2]
    assert isinstance(icelock.load_catalog("any", **properties), HiveCatalog)


def test_after_every_commit_the_row_has_the_hash_of_the_file_and_the_file_before(hive: HiveLake) -> None:
    hive.make(properties={**KEYED, "encryption.data-key-length": "32"})
    created = hive.parameters()
    assert "previous_metadata_location" not in created
    assert (created["encryption.key-id"], created["encryption.data-key-length"]) == ("keyA", "32")
    assert set(created) <= OURS | PUSHED | HIVES | {"encryption.data-key-length"}
    seen = {check_hash(hive)}
    table = hive.load()
    steps = (
        lambda: table.append(people()),
        lambda: table.append(people(10)),
        lambda: table.overwrite(people(50, 5)),
        lambda: table.transaction().set_properties({"owner": "me", "note": "größer"}).commit_transaction(),
        lambda: table.transaction().remove_properties("note").commit_transaction(),
        lambda: table.update_schema().add_column("extra", LongType(), doc='a "quoted" \x1f column').commit(),
        lambda: table.update_spec().add_identity("city").commit(),
        lambda: table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "first").commit(),
    )
    for step in steps:
        before = hive.parameters()["metadata_location"]
        step()
        after = hive.parameters()
        assert after["previous_metadata_location"] == before
        assert after["table_type"] == "ICEBERG"
        assert set(after) <= OURS | PUSHED | HIVES | {"encryption.data-key-length", "owner", "note"}
        assert max(len(value) for value in after.values()) < 4000
        seen.add(check_hash(hive))
        assert hive.locks() == []
    assert len(seen) == 1 + len(steps)
    assert "note" not in hive.parameters()
    assert [column.name for column in hive.row().sd.cols] == ["id", "name", "city", "extra"]
    assert ids(hive.load()) == list(range(50, 55))


def test_every_file_but_metadata_is_encrypted(hive: HiveLake) -> None:
    """C-07."""
    hive.make(rows=10)
    magics = {name.rsplit(".", 1)[1]: data[:4] for name, data in hive.files().items()}
    assert magics == {"parquet": b"PARE", "avro": b"AGS1", "json": b'{"fo'}


def test_parameters_of_others_are_kept(hive: HiveLake) -> None:
    hive.make()
    others = {"comment": "ours", "storage_handler": "x", "current-snapshot-summary": "{}", "numRows": "7", "spark.sql.x": "ü"}
    hive.alter(put=others)
    table = hive.load()
    table.append(people())
    table.transaction().set_properties({"owner": "me"}).commit_transaction()
    after = hive.parameters()
    assert {key: after[key] for key in others} == others
    check_hash(hive)


def test_formats_that_another_engine_gave_the_row_are_kept(hive: HiveLake) -> None:
    hive.make()
    with hive.catalog()._client as client:
        row = client.get_table(hive.database, "t")
        row.sd.inputFormat, row.sd.serdeInfo.serializationLib = "org.apache.iceberg.mr.hive.HiveIcebergInputFormat", "other.SerDe"
        client.alter_table(hive.database, "t", row)
    hive.load().append(people())
    sd = hive.row().sd
    assert (sd.inputFormat, sd.serdeInfo.serializationLib) == ("org.apache.iceberg.mr.hive.HiveIcebergInputFormat", "other.SerDe")


def test_a_property_too_long_for_a_metastore_stays_in_the_file(hive: HiveLake) -> None:
    """C-45."""
    table = hive.make()
    long = json.dumps([{"field-id": n, "names": [f"name-{n}"]} for n in range(1, 400)])
    assert len(long) > 4000
    table.transaction().set_properties({"note": "short"}).commit_transaction()
    assert hive.parameters()["note"] == "short"
    table.transaction().set_properties({"note": long}).commit_transaction()
    assert "note" not in hive.parameters()
    assert hive.load().properties["note"] == long
    check_hash(hive)


def test_properties_with_names_of_the_row_do_not_reach_it(hive: HiveLake) -> None:
    hostile = {"metadata_hash": "bm8=", "metadata_location": "file:/elsewhere", "table_type": "HUDI", "previous_metadata_location": "x"}
    for name, value in hostile.items():
        with pytest.raises(PolicyError, match=name):
            hive.make(properties={**KEYED, name: value})
    table = hive.make(properties=KEYED)
    assert "previous_metadata_location" not in hive.parameters()
    check_hash(hive)
    table.append(people())
    with pytest.raises(PolicyError, match="table_type"):
        table.transaction().set_properties({"table_type": "HUDI"}).commit_transaction()
    after = hive.parameters()
    assert after["table_type"] == "ICEBERG"
    assert local(after["metadata_location"]).exists()
    check_hash(hive)
    assert ids(hive.load()) == list(range(10))


def test_list_rename_and_drop(hive: HiveLake) -> None:
    hive.make("a", rows=5)
    hive.make("b")
    catalog = hive.catalog()
    assert sorted(catalog.list_tables(hive.database)) == [(hive.database, "a"), (hive.database, "b")]
    hive.alter("a", put={"comment": "stays"})
    before = hive.parameters("a")
    renamed = catalog.rename_table(hive.name("a"), hive.name("c"))
    assert hive.parameters("c") == before
    assert hive.locks() == []
    assert ids(renamed) == list(range(5))
    assert not catalog.table_exists(hive.name("a"))
    renamed.append(people(5, 5))
    check_hash(hive, "c")
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table(hive.name("c"), hive.name("b"))
    with pytest.raises(NoSuchNamespaceError):
        catalog.rename_table(hive.name("c"), f"{hive.database}_none.c")
    with pytest.raises(NoSuchTableError):
        catalog.rename_table(hive.name("none"), hive.name("d"))
    catalog.drop_table(hive.name("b"))
    assert catalog.list_tables(hive.database) == [(hive.database, "c")]
    with pytest.raises(NoSuchTableError):
        catalog.drop_table(hive.name("b"))


def test_a_table_is_dropped_without_a_kms_and_its_files_stay(hive: HiveLake) -> None:
    hive.make(rows=5)
    before = hive.files()
    hive.calls.take()
    hive.without_kms_catalog().drop_table(hive.name())
    assert hive.files() == before
    assert hive.calls.take() == []


def test_names_are_shown_without_a_kms_and_rows_are_not(hive: HiveLake) -> None:
    """C-08."""
    hive.make(rows=5)
    table = hive.without_kms_catalog().load_table(hive.name())
    assert table.schema().column_names == ["id", "name", "city"]
    with pytest.raises(KeyUnavailableError, match=r"encryption\.kms-type"):
        table.scan().to_arrow()
    with pytest.raises(KeyUnavailableError, match=r"encryption\.kms-type"):
        table.append(people())


def test_purge_deletes_every_file(hive: HiveLake) -> None:
    table = hive.make(rows=5)
    table.append(people(5))
    hive.catalog().purge_table(hive.name())
    assert hive.files() == {}
    assert hive.catalog().list_tables(hive.database) == []


def test_namespaces_take_no_encryption_settings(hive: HiveLake) -> None:
    catalog = hive.catalog()
    with pytest.raises(PolicyError, match="each table"):
        catalog.create_namespace("other", {"encryption.key-id": "keyA"})
    assert ("other",) not in catalog.list_namespaces()
    with pytest.raises(PolicyError, match="each table"):
        catalog.update_namespace_properties(hive.database, updates={"Encryption.Key-Id": "keyA"})
    catalog.update_namespace_properties(hive.database, updates={"owner": "me"})
    assert catalog.load_namespace_properties(hive.database)["owner"] == "me"


def test_names_that_are_taken_or_missing_leave_no_file(hive: HiveLake) -> None:
    hive.make()
    before = hive.files()
    with pytest.raises(TableAlreadyExistsError):
        hive.make()
    with pytest.raises(NoSuchNamespaceError):
        hive.catalog().create_table("none_of_these.t", people().schema, properties=KEYED)
    with pytest.raises(NoSuchTableError):
        hive.load("none")
    assert hive.files() == before


@pytest.mark.parametrize("change", [{"encryption.key-id": "keyB"}, {"encryption.data-key-length": "32"}])
def test_key_settings_cannot_be_changed(hive: HiveLake, change: dict[str, str]) -> None:
    """C-15."""
    table = hive.make()
    before = hive.parameters()
    with pytest.raises(PolicyError):
        table.transaction().set_properties(change).commit_transaction()
    with pytest.raises(PolicyError):
        table.transaction().remove_properties("encryption.key-id").commit_transaction()
    assert hive.parameters() == before


def test_encryption_below_version_3_is_refused(hive: HiveLake) -> None:
    """C-14."""
    with pytest.raises(PolicyError, match="version 3"):
        hive.make(properties={**KEYED, "format-version": "2"})
    assert hive.catalog().list_tables(hive.database) == []


def test_a_new_table_has_row_ids_from_zero(hive: HiveLake) -> None:
    """C-46."""
    hive.make()
    assert json.loads(hive.metadata_path().read_text())["next-row-id"] == 0


def test_plain_tables_of_version_2_are_pyiceberg_s(hive: HiveLake) -> None:
    catalog = hive.catalog()
    table = catalog.create_table(
        hive.name("plain"), Schema(NestedField(1, "id", LongType(), required=False)), properties={"icelock.plain": "true"}
    )
    table.append(pa.table({"id": [1, 2]}))
    table.transaction().set_properties({"owner": "me"}).commit_transaction()
    loaded = hive.load("plain")
    assert not isinstance(loaded, Table)
    assert ids(loaded) == [1, 2]
    assert "metadata_hash" not in hive.parameters("plain")
    with pytest.raises(PolicyError, match="table that exists"):
        loaded.transaction().set_properties(KEYED).commit_transaction()


def test_a_type_that_hive_has_no_name_for_is_refused_before_anything_is_made(hive: HiveLake) -> None:
    schema = Schema(NestedField(1, "at", TimestampNanoType(), required=False))
    with pytest.raises(PolicyError, match="TimestampNanoType"):
        hive.catalog().create_table(hive.name(), schema, properties=KEYED)
    assert hive.files() == {}
    table = hive.make()
    before = hive.parameters()
    with pytest.raises(PolicyError, match="TimestampNanoType"):
        table.update_schema().add_column("at", TimestampNanoType()).commit()
    assert hive.parameters() == before
    assert hive.locks() == []


def test_what_the_metastore_refuses_is_not_made(hive: HiveLake) -> None:
    with pytest.raises(CommitError, match=r"was not made.*not a valid"):
        hive.make("not-a-name")
    assert hive.files() == {}


def test_only_true_or_false_for_require_hash(hive: HiveLake) -> None:
    with pytest.raises(PolicyError, match="true or false"):
        hive.catalog(**{"icelock.hive.require-hash": "no"})
    with pytest.raises(PolicyError, match="require-hash"):
        hive.catalog(**{"icelock.hive.requirehash": "true"})


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9083", "thrift://", "127.0.0.1:9083", ""])
def test_a_uri_that_names_no_metastore(uri: str) -> None:
    with pytest.raises(PolicyError, match=r"thrift://metastore(\.example\.com)?:9083"):
        icelock.load_catalog("hive", type="hive", uri=uri)


def test_the_second_uri_is_used_when_the_first_does_not_answer(hive: HiveLake) -> None:
    hive.make(rows=2)
    assert ids(hive.load(uri=f"thrift://127.0.0.1:1,{hive.uri}")) == [0, 1]
