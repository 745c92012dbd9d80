"""Bad input: a typed error with a remedy, and nothing changed."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError, NotInstalledError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import icelock
from icelock.errors import FormatError, KeyUnavailableError, KmsError, KmsErrorKind, PolicyError
from tests.lakes.sqlite import KEYED, TestLake, people

SCHEMA = people().schema


@pytest.fixture
def unchanged(lake: TestLake) -> Any:
    """Check after the test that it left no file and no table."""
    before, tables = lake.files(), lake.catalog().list_tables("db")
    yield lake
    assert lake.files() == before
    assert lake.catalog().list_tables("db") == tables


def refused(lake: TestLake, properties: dict[str, str], kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        lake.catalog().create_table("db.bad", SCHEMA, properties=properties)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("name", ["encryption.key-id", "encryption.data-key-length"])
def test_encryption_below_version_3(unchanged: TestLake, version: str, name: str) -> None:
    """C-14."""
    value = "keyA" if name.endswith("key-id") else "16"
    refused(unchanged, {"format-version": version, name: value}, PolicyError, "version 3")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("encryption.keyid", "encryption.key-id"),
        ("encryption.key_id", "encryption.key-id"),
        ("Encryption.Key-Id", "encryption.key-id"),
        ("encryption_key-id", "encryption.key-id"),
        ("encryption.data-key-lenght", "encryption.data-key-length"),
        ("kms.memory.keys.x", "known"),
        ("encryption.kms-type", "known|did you mean"),
        ("icelock.plaintext-files", "known|did you mean"),
    ],
)
def test_unknown_or_misspelt_table_settings(unchanged: TestLake, name: str, near: str) -> None:
    """C-59; KMS settings are never table properties."""
    refused(unchanged, {**KEYED, name: "x"}, PolicyError, near)


@pytest.mark.parametrize("value", ["0", "15", "17", "33", "sixteen", "", "16.0", "-16"])
def test_other_key_lengths(unchanged: TestLake, value: str) -> None:
    """C-27."""
    refused(unchanged, {**KEYED, "encryption.data-key-length": value}, PolicyError, "must be 16, 24 or 32")


@pytest.mark.parametrize("value", ["", " keyA", "keyA ", "\tkeyA"])
def test_key_ids_with_white_space(unchanged: TestLake, value: str) -> None:
    refused(unchanged, {"encryption.key-id": value}, PolicyError, "white space")


def test_a_key_length_without_key_id(unchanged: TestLake) -> None:
    refused(unchanged, {"encryption.data-key-length": "16"}, PolicyError, "nothing would be encrypted|version 3")


def test_a_key_id_that_the_kms_does_not_know(unchanged: TestLake) -> None:
    with pytest.raises(KmsError, match=r"db\.bad.*'nobody'") as caught:
        unchanged.catalog().create_table("db.bad", SCHEMA, properties={"encryption.key-id": "nobody"})
    assert caught.value.kind is KmsErrorKind.MISSING


def test_no_kms(unchanged: TestLake) -> None:
    with pytest.raises(KeyUnavailableError, match=r"encryption\.kms-type"):
        unchanged.without_kms().create_table("db.bad", SCHEMA, properties=KEYED)


@pytest.mark.parametrize(
    ("properties", "match"),
    [
        ({"encryption.kms-type": "memory"}, "exclude each other"),
        ({"encryption.kms-impl": "", "encryption.kms-type": "lokal"}, "local|exclude"),
        ({"encryption.kms-tpye": "local"}, "encryption.kms-type"),
        ({"encryption.kek-cache-seconds": "forever"}, "seconds"),
        ({"encryption.kek-cache-seconds": "3601"}, "seconds"),
        ({"encryption.kek-cache-seconds": "²"}, "seconds"),
        ({"icelock.plaintext-files": "yes"}, "allow-unkeyed"),
    ],
)
def test_bad_catalog_settings(lake: TestLake, properties: dict[str, str], match: str) -> None:
    with pytest.raises(PolicyError, match=match):
        lake.catalog(**properties)


def test_misspelt_settings_of_a_built_in_kms(lake: TestLake) -> None:
    base = {k: v for k, v in lake.properties().items() if not k.startswith(("encryption.", "kms."))}
    with pytest.raises(PolicyError, match=r"kms\.memory\.keys"):
        icelock.load_catalog("test", **base, **{"encryption.kms-type": "memory", "kms.memory.key.keyA": "00" * 16})


@pytest.mark.parametrize("change", ["keyB", "keyA ", ""])
def test_changing_the_key_id(lake: TestLake, change: str) -> None:
    """C-15."""
    table = lake.catalog().create_table("db.t", SCHEMA, properties=KEYED)
    before = lake.files()
    with pytest.raises(PolicyError, match=r"encryption\.key-id"):
        table.transaction().set_properties({"encryption.key-id": change}).commit_transaction()
    assert lake.files() == before


def test_removing_the_key_id_or_setting_a_length_later(lake: TestLake) -> None:
    table = lake.catalog().create_table("db.t", SCHEMA, properties=KEYED)
    before = lake.files()
    with pytest.raises(PolicyError, match="cannot be removed"):
        table.transaction().remove_properties("encryption.key-id")
    with pytest.raises(PolicyError, match="table that exists"):
        table.transaction().set_properties({"encryption.data-key-length": "32"})
    assert lake.files() == before


def test_setting_a_key_id_on_a_plain_table(lake: TestLake) -> None:
    """C-14: also through PyIceberg's own transaction, because the commit is guarded."""
    table = lake.catalog().create_table(
        "db.plain", Schema(NestedField(1, "id", LongType(), required=False)), properties={"icelock.plain": "true"}
    )
    assert table.format_version == 2
    before = lake.files()
    with pytest.raises(PolicyError, match="table that exists"), table.transaction() as tx:
        tx.set_properties({"encryption.key-id": "keyA"})
    assert lake.files() == before


@pytest.mark.parametrize(
    ("properties", "match"),
    [
        ({"write.format.default": "orc"}, "ORC"),
        ({"write.format.default": "csv"}, "Parquet or Avro"),
        ({"write.parquet.page-version": "v2"}, "v1"),
    ],
)
def test_formats_that_an_encrypted_table_cannot_have(unchanged: TestLake, properties: dict[str, str], match: str) -> None:
    """C-24."""
    refused(unchanged, {**KEYED, **properties}, PolicyError, match)


@pytest.mark.parametrize("name", ["num-retries", "min-wait-ms", "max-wait-ms", "total-timeout-ms"])
def test_settings_of_commits_that_are_no_numbers(unchanged: TestLake, name: str) -> None:
    """As in Java: each later commit would be refused."""
    refused(unchanged, {**KEYED, f"commit.retry.{name}": "x"}, PolicyError, f"{name} is 'x'; it must be a whole number")


def test_setting_orc_later(lake: TestLake) -> None:
    table = lake.catalog().create_table("db.t", SCHEMA, properties=KEYED)
    before = lake.files()
    with pytest.raises(PolicyError, match="ORC"):
        table.transaction().set_properties({"write.format.default": "orc"}).commit_transaction()
    assert lake.files() == before


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(lambda: people().append_column("extra", pa.array(range(10))), id="more columns"),
        pytest.param(lambda: people().set_column(0, "id", pa.array(["x"] * 10)), id="another type"),
        pytest.param(lambda: [{"id": "x"}], id="not arrow"),
        pytest.param(lambda: None, id="nothing"),
    ],
)
def test_rows_that_do_not_fit(lake: TestLake, rows: Callable[[], Any]) -> None:
    table = lake.catalog().create_table("db.t", SCHEMA, properties=KEYED)
    before = lake.files()
    for write in (table.append, table.overwrite):
        with pytest.raises(PolicyError):
            write(rows())
    assert lake.files() == before


def test_more_columns_than_encrypted_parquet_can_count(lake: TestLake) -> None:
    """C-21."""
    schema = Schema(*[NestedField(i, f"c{i}", LongType(), required=False) for i in range(1, 32_769)])
    table = lake.catalog().create_table("db.wide", schema, properties=KEYED)
    before = lake.files()
    with pytest.raises(PolicyError, match=r"32767|32,767"):
        table.append(pa.table({"c1": pa.array([1], pa.int64())}))
    assert lake.files() == before


def test_operations_of_later_versions_are_refused(lake: TestLake) -> None:
    """C-09, C-48: encrypted, or refused; never plain."""
    table = lake.catalog().create_table("db.t", SCHEMA, properties=KEYED)
    table.append(people())
    before = lake.files()
    uses = (
        lambda: table.dynamic_partition_overwrite(people()),
        lambda: table.add_files(["/somewhere.parquet"]),
        table.update_statistics,
        table.to_daft,
        table.to_bodo,
        table.__datafusion_table_provider__,
        lambda: table.io.new_output(f"{table.location()}/data/plain.parquet"),
    )
    for use in uses:
        with pytest.raises(PolicyError):
            use()
    assert lake.files() == before


def test_a_damaged_metadata_file(lake: TestLake) -> None:
    table = lake.catalog().create_table("db.t", SCHEMA, properties=KEYED)
    path = next(lake.warehouse.rglob("*.metadata.json"))
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(FormatError, match=path.name):
        lake.catalog().load_table("db.t")
    path.write_bytes(good)
    assert lake.catalog().load_table("db.t").metadata == table.metadata


def test_names_that_are_taken_or_missing(lake: TestLake) -> None:
    catalog = lake.catalog()
    catalog.create_table("db.t", SCHEMA, properties=KEYED)
    before = lake.files()
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("db.t", SCHEMA, properties=KEYED)
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.none")
    assert lake.files() == before


@pytest.mark.parametrize("kind", ["nessie", "bigquery"])
def test_catalogs_that_cannot_hold_keys_yet(kind: str) -> None:
    with pytest.raises(PolicyError, match="cannot hold encrypted tables in this version"):
        icelock.load_catalog("other", type=kind, uri="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("table-default.encryption.keyid", "did you mean 'encryption.key-id'"),
        ("table-override.encryption.key_id", "did you mean 'encryption.key-id'"),
        ("table-default.Encryption.Key-Id", "did you mean 'encryption.key-id'"),
        ("table-default.encryption.data-key-lenght", "did you mean 'encryption.data-key-length'"),
        ("table-default.encryption.kms-type", "unknown table property"),
        ("table-default.kms.memory.keys.x", "unknown table property"),
        ("table-default.icelock.plain", "unknown table property"),
        ("table-override.icelock.require-encryption", "unknown table property"),
        ("table-defaults.encryption.key-id", "did you mean 'table-default.encryption.key-id'"),
        ("table_default.encryption.key-id", "did you mean 'table-default.encryption.key-id'"),
        ("Table-Default.encryption.key-id", "did you mean 'table-default.encryption.key-id'"),
        ("table-overide.owner", "did you mean 'table-override.owner'"),
        ("table-default", "did you mean 'table-default.<table property>'"),
        ("table-default.", "did you mean"),
        ("encryption.key-id", "set 'table-default.encryption.key-id'"),
        ("default.encryption.key-id", "set 'table-default.encryption.key-id'"),
        ("table.encryption.data-key-length", "set 'table-default.encryption.data-key-length'"),
        ("icelock.require_encryption", "did you mean 'icelock.require-encryption'"),
        ("icelock.plain", "unknown catalog property"),
    ],
)  # fmt: skip
def test_settings_for_new_tables_that_would_mean_nothing(lake: TestLake, name: str, match: str) -> None:
    with pytest.raises(PolicyError, match=match):
        lake.catalog(**{name: "keyA"})


@pytest.mark.parametrize(
    ("name", "value"), [("encryption.key-id", " keyA"), ("encryption.key-id", ""), ("encryption.data-key-length", "15")]
)
@pytest.mark.parametrize("prefix", ["table-default.", "table-override."])
def test_values_for_new_tables_that_cannot_be(lake: TestLake, prefix: str, name: str, value: str) -> None:
    with pytest.raises(PolicyError, match=f"below '{prefix}'"):
        lake.catalog(**{prefix + name: value})


def test_flags_that_are_neither_true_nor_false(lake: TestLake) -> None:
    with pytest.raises(PolicyError, match="must be true or false"):
        lake.catalog(**{"icelock.require-encryption": "no"})
    refused(lake, {"icelock.plain": "yes"}, PolicyError, "must be true or false")
    refused(lake, {**KEYED, "icelock.plain": "true"}, PolicyError, "exclude each other")


def test_a_default_length_needs_a_key_only_where_a_table_has_one(lake: TestLake) -> None:
    catalog = lake.catalog(**{"table-default.encryption.data-key-length": "32"})
    assert catalog.create_table("db.keyed", SCHEMA, properties=KEYED).properties["encryption.data-key-length"] == "32"
    assert catalog.create_table("db.plain", SCHEMA, properties={"icelock.plain": "true"}).format_version == 2
    with pytest.raises(PolicyError, match="would be plain"):
        catalog.create_table("db.bad", SCHEMA)


def test_without_a_kms_plain_tables_are_made_unless_encryption_is_asked_for(lake: TestLake) -> None:
    keep = {name: value for name, value in lake.properties().items() if not name.startswith(("encryption.", "kms."))}
    assert icelock.load_catalog("test", **keep).create_table("db.plain", SCHEMA).format_version == 2
    with pytest.raises(PolicyError, match="would be plain"):
        icelock.load_catalog("test", **keep, **{"icelock.require-encryption": "true"}).create_table("db.bad", SCHEMA)
    with pytest.raises(KeyUnavailableError, match="no KMS"):
        icelock.load_catalog("test", **keep, **{"table-default.encryption.key-id": "keyA"}).create_table("db.bad", SCHEMA)


# --- places: what they have to be follows from RFC 8089 (file URIs) and from what a process's working directory is

PLACES = {
    "file://host/wh": r"'host' is where a host would.*file:///host/wh.*file:///wh",
    "file://localhost/wh": "'localhost' is where a host would",
    "file://wh": "'wh' is where a host would.*file:///wh",
    "wh": "a relative path means a different folder in each process.*'file:///.*/wh'",
    "./wh": "a relative path",
    "..": "a relative path",
    "~/wh": "a relative path",
    " /wh": "a relative path.*'file:///wh'",
    "file:wh": "a relative path",
    "": "it is empty",
    "C:\\wh": "that is a Windows path",
    "s3:///wh": "it names no bucket; write 's3://bucket/folder'",
    "s3:/wh": "it names no bucket",
    "gs:///wh": "it names no bucket",
    "/wh\0": "NUL",
}


NO_STORAGE = {"ftp://host/wh": "there is no storage for the scheme 'ftp'; known: s3"}
NOT_EMPTY = {place: said for place, said in PLACES.items() if place}  # an empty one is none
GIVEN: dict[str, tuple[Callable[[Any, Any, str], Any], dict[str, str]]] = {
    "warehouse": (lambda lake, _, place: lake.catalog(warehouse=place), {**NOT_EMPTY, **NO_STORAGE}),
    "location": (
        lambda _, catalog, place: catalog.create_table("db.bad", SCHEMA, location=place, properties=KEYED),
        {**PLACES, **NO_STORAGE},
    ),
    "location of a plain table": (
        lambda _, catalog, place: catalog.create_table("db.bad", SCHEMA, location=place, properties={"icelock.plain": "true"}),
        {**PLACES, **NO_STORAGE},
    ),
    "location of a namespace": (lambda _, catalog, place: catalog.create_namespace("n", {"location": place}), {**PLACES, **NO_STORAGE}),
    "write.data.path": (lambda _, catalog, place: with_property(catalog, "write.data.path", place), PLACES),
    "write.metadata.path": (lambda _, catalog, place: with_property(catalog, "write.metadata.path", place), PLACES),
    "a property that is set": (
        lambda _, catalog, place: catalog.create_table_transaction("db.bad", SCHEMA, properties=KEYED).set_properties(
            {"write.object-storage.path": place}
        ),
        PLACES,
    ),
}


def test_a_place_that_is_no_text_and_a_scheme_of_the_same_family(unchanged: TestLake) -> None:
    """PyIceberg's Arrow FileIO opens gcs:// as gs://."""
    assert unchanged.catalog(warehouse="gcs://bucket/wh").properties["warehouse"] == "gcs://bucket/wh"
    for give in (
        lambda: unchanged.catalog(warehouse=Path("/wh")),
        lambda: unchanged.catalog().create_table("db.bad", SCHEMA, location=Path("/t"), properties=KEYED),
        lambda: unchanged.catalog().create_namespace("n", {"location": None}),
    ):
        with pytest.raises(PolicyError, match="it is not text"):
            give()


@pytest.mark.parametrize("uri", ["mysql://u:secret@host/db", "nothing-of-sqlalchemy://u:secret@host/db"])
def test_passwords_of_a_uri_are_not_in_the_traceback(uri: str) -> None:
    for properties in ({"uri": uri}, {"uri": uri, "type": "sql"}):
        with pytest.raises((PolicyError, NotInstalledError)) as caught:
            icelock.load_catalog("prod", **properties)
        assert "secret" not in "".join(traceback.format_exception(caught.value))


def with_property(catalog: Any, name: str, place: str) -> None:
    catalog.create_table("db.bad", SCHEMA, properties={**KEYED, name: place})


@pytest.mark.parametrize("given", list(GIVEN))
def test_places_that_mean_no_one_folder(unchanged: TestLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str) -> None:
    monkeypatch.chdir(tmp_path)
    give, places = GIVEN[given]
    catalog = unchanged.catalog()
    for place, said in places.items():
        with pytest.raises(PolicyError, match=said) as caught:
            give(unchanged, catalog, place)
        assert repr(place) in str(caught.value)
    assert not list(tmp_path.rglob("*.json"))


def test_a_catalog_without_a_warehouse(lake: TestLake) -> None:
    catalog = lake.catalog(warehouse="")
    with pytest.raises(PolicyError, match=r"catalog test has no warehouse; set warehouse to a location such as .* or give create_table a"):
        catalog.create_table("db.bad", SCHEMA, properties=KEYED)
    assert not catalog.table_exists("db.bad")


def test_a_metadata_file_that_is_registered_has_a_place(lake: TestLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the catalog's row would mean another file in each folder."""
    catalog = lake.catalog()
    made = catalog.create_table("db.t", SCHEMA, properties=KEYED)
    path = Path(made.metadata_location.removeprefix("file://"))
    catalog.drop_table("db.t")
    monkeypatch.chdir(path.parent)
    with pytest.raises(PolicyError, match="a relative path"):
        catalog.register_table("db.t", path.name)
    assert not catalog.table_exists("db.t")
    assert catalog.register_table("db.t", str(path)).metadata.table_uuid == made.metadata.table_uuid


# --- rows in other forms than Arrow's


class Frame:
    """What a type of another library looks like."""

    def __init__(self, library: str, name: str) -> None:
        self.__class__ = type(name, (Frame,), {"__module__": f"{library}.core.frame"})


FORMS: dict[str, tuple[Callable[[], Any], str]] = {
    "lazy": (lambda: Frame("polars", "LazyFrame"), r"polars\.LazyFrame; give the result of df\.collect\(\)"),
    "spark": (lambda: Frame("pyspark", "DataFrame"), r"df\.write\.format\(\"icelock\"\)"),
    "numpy": (lambda: Frame("numpy", "ndarray"), r"pa\.table\({\"column\": array}\)"),
    "dict": (lambda: people().to_pydict(), r"no rows: dict; make a Table with pa\.table\(columns\)"),
    "tuples": (lambda: [(1, "a", "b")], r"no rows: a list with a tuple in it; give a pyarrow Table"),
    "None": (lambda: None, "no rows: None; give a pyarrow Table"),
    "text": (lambda: "rows", "no rows: str; give a pyarrow Table"),
    "column": (lambda: people().column("id"), "no rows: pyarrow.ChunkedArray is one column"),
    "kind": (lambda: pa.Table, "no rows: .*; give a pyarrow Table"),
}


@pytest.mark.parametrize("form", list(FORMS))
def test_rows_that_are_no_arrow_table(lake: TestLake, form: str) -> None:
    make, said = FORMS[form]
    table = lake.catalog().create_table("db.t", SCHEMA, properties=KEYED)
    before = lake.files()
    for write in (table.append, table.overwrite, lambda rows: table.upsert(rows, ["id"])):
        with pytest.raises(PolicyError, match=said):
            write(make())
    assert lake.files() == before
