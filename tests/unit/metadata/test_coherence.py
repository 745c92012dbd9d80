"""Contradictions in metadata.json that Java Iceberg 1.12.0 refuses (TableMetadata and the parsers below), one change each.

The file is one of Java's own; each change was chosen by reading Java's checks.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icelock.errors import FormatError
from icelock.metadata.table_metadata import parse_metadata, parse_metadata_object

GOLDEN = Path(__file__).parents[2] / "golden" / "data"
Change = Callable[[dict[str, Any]], None]


def golden(name: str) -> dict[str, Any]:
    facts = json.loads((GOLDEN / name / "table.json").read_text(encoding="utf-8"))
    path = GOLDEN / name / "table" / "metadata" / facts["metadata_location"].rsplit("/", 1)[1]
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def put(*path: str | int, value: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value

    return change


def drop(*path: str | int) -> Change:
    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for name in path[:-1]:
            inner = inner[name]
        del inner[path[-1]]

    return change


def twice(name: str) -> Change:
    return lambda document: document[name].append(copy.deepcopy(document[name][0]))


def log_back(milliseconds: int) -> Change:
    def change(document: dict[str, Any]) -> None:
        document["snapshot-log"][1]["timestamp-ms"] = document["snapshot-log"][0]["timestamp-ms"] - milliseconds

    return change


def log_ahead(log: str, milliseconds: int) -> Change:
    def change(document: dict[str, Any]) -> None:
        document[log][-1]["timestamp-ms"] = document["last-updated-ms"] + milliseconds

    return change


def another_name(document: dict[str, Any]) -> None:
    document["current_snapshot_id"] = document.pop("current-snapshot-id")


ROOT_FIELD = ("schemas", 0, "fields", 0)
WRONG: dict[str, tuple[Change, str]] = {
    "current snapshot is not main": (lambda d: d.update({"current-snapshot-id": d["snapshots"][0]["snapshot-id"]}), "branch main is at"),
    "current snapshot is none, main is there": (put("current-snapshot-id", value=-1), "branch main is at"),
    "current snapshot is not there": (put("current-snapshot-id", value=5), "the id of one of the snapshots"),
    "a branch names no snapshot": (put("refs", "b", value={"snapshot-id": 5, "type": "branch"}), "ref 'b': snapshot-id is 5"),
    "a ref of another kind": (put("refs", "main", "type", value="trunk"), "branch or tag"),
    "a tag keeps snapshots": (lambda d: d["refs"].update(x={**d["refs"]["main"], "type": "tag", "min-snapshots-to-keep": 1}), "is a tag"),
    "a ref keeps none": (put("refs", "main", "min-snapshots-to-keep", value=0), "min-snapshots-to-keep is 0"),
    "a ref has a negative age": (put("refs", "main", "max-ref-age-ms", value=-1), "max-ref-age-ms is -1"),
    "refs are null": (put("refs", value=None), "refs is nothing"),
    "snapshot is newer than the table": (put("last-sequence-number", value=0), "at most last-sequence-number"),
    "snapshot twice": (twice("snapshots"), "occurs twice"),
    "schema twice": (twice("schemas"), "schema-id 0 occurs twice"),
    "spec twice": (twice("partition-specs"), "spec-id 0 occurs twice"),
    "sort order twice": (twice("sort-orders"), "order-id 0 occurs twice"),
    "key twice": (twice("encryption-keys"), "key-id of encryption-keys"),
    "no current schema": (put("current-schema-id", value=9), "current-schema-id is 9"),
    "no default spec": (put("default-spec-id", value=9), "default-spec-id is 9"),
    "no default sort order": (put("default-sort-order-id", value=9), "default-sort-order-id is 9"),
    "sort order 0 sorts": (
        put("sort-orders", 0, "fields", value=[{"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}]),
        "order 0",
    ),
    "last column id behind": (put("last-column-id", value=0), "last-column-id is 0, expected at least"),
    "schema of a snapshot is not there": (put("snapshots", 0, "schema-id", value=7), "schema-id is 7"),
    "next row id missing": (drop("next-row-id"), "next-row-id is missing"),
    "next row id null": (put("next-row-id", value=None), "next-row-id is missing"),
    "next row id behind": (put("next-row-id", value=0), "next-row-id is 0, expected at least"),
    "next row id negative": (put("next-row-id", value=-1), "next-row-id is -1"),
    "added rows missing": (drop("snapshots", 0, "added-rows"), "added-rows is nothing"),
    "first row id negative": (put("snapshots", 0, "first-row-id", value=-1), "first-row-id is -1"),
    "column twice": (lambda d: d["schemas"][0]["fields"].append(copy.deepcopy(d["schemas"][0]["fields"][0])), "occurs twice"),
    "column id twice": (
        lambda d: d["schemas"][0]["fields"].append({**d["schemas"][0]["fields"][0], "name": "other"}),
        "its id 1 occurs twice",
    ),
    "column id reserved": (put(*ROOT_FIELD, "id", value=2_147_483_540), "id is 2147483540"),
    "identifier is not a column": (put("schemas", 0, "identifier-field-ids", value=[99]), "identifier-field-ids is 99"),
    "column without required": (drop(*ROOT_FIELD, "required"), "required is missing"),
    "required is text": (put(*ROOT_FIELD, "required", value="false"), "required is the text 'false'"),
    "fixed without length": (put(*ROOT_FIELD, "type", value="fixed[0]"), r"fixed\[0\]"),
    "fixed beyond all files": (put(*ROOT_FIELD, "type", value="fixed[1000000000000]"), "32 bits"),
    "decimal of 39 digits": (put(*ROOT_FIELD, "type", value="decimal(39, 2)"), "38 digits"),
    "number in place of text": (put("properties", "x", value=1), r"properties\['x'\] is 1"),
    "text in place of a number": (put("last-sequence-number", value="2"), "last-sequence-number is the text '2'"),
    "true in place of a number": (put("snapshots", 0, "snapshot-id", value=True), "snapshot-id is True"),
    "1.0 in place of a number": (put("last-column-id", value=3.0), "last-column-id is 3.0"),
    "65 bits": (put("last-updated-ms", value=2**64), "last-updated-ms is 18446744073709551616"),
    "33 bits": (put("last-column-id", value=2**31), "last-column-id is 2147483648"),
    "a time that is none": (put("snapshots", 0, "timestamp-ms", value=253_402_300_800_000), "timestamp-ms is"),
    "summary holds a number": (put("snapshots", 0, "summary", "total-records", value=3), "text"),
    "no table": (drop("table-uuid"), "table-uuid is missing"),
    "no location": (put("location", value=""), "location is the text ''"),
    "a name that PyIceberg takes and Java does not": (another_name, "current_snapshot_id"),
    "a list on a web server": (put("snapshots", 0, "manifest-list", value="http://127.0.0.1:9/x"), "another storage"),
    "a list in a bucket": (put("snapshots", 0, "manifest-list", value="s3://bucket/x"), "another storage"),
    "a list on another host": (put("snapshots", 0, "manifest-list", value="file://host/x"), "another storage"),
    "a list of NUL": (put("snapshots", 0, "manifest-list", value="/a\0"), "manifest-list"),
    "half a character": (put("properties", "x", value="\ud800"), "surrogate"),
    "unknown field too deep": (put("x", value=json.loads("[" * 900 + "]" * 900)), "200 levels"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_java_refuses_is_a_format_error_that_names_the_file(name: str) -> None:
    document = golden("mor_dv")
    change, says = WRONG[name]
    parse_metadata_object(copy.deepcopy(document), location="file:/t.json")
    change(document)
    with pytest.raises(FormatError, match=rf"(?s)^file:/t\.json .*{says}"):
        parse_metadata(json.dumps(document), location="file:/t.json")


RIGHT: dict[str, Change] = {
    "a log that goes back, which the next commit puts right": log_back(90_000),
    "a log that ends after the last update, likewise": log_ahead("snapshot-log", 60_000),
    "no refs at all": drop("refs"),
    "null stands for nothing": put("snapshots", 0, "parent-snapshot-id", value=None),
    "unknown fields": put("x", value={"y": [1, None, "z"]}),
    "a tag for ever": lambda d: d["refs"].update(x={**d["refs"]["main"], "type": "tag", "max-ref-age-ms": 2**63 - 1}),
    "names that differ in case": lambda d: (
        d["schemas"][0]["fields"].append({**d["schemas"][0]["fields"][0], "name": "ID", "id": 50}),
        d.update({"last-column-id": 50}),
    )[1],
    "a log that names snapshots that are gone": lambda d: d["snapshot-log"].insert(0, {"timestamp-ms": 1, "snapshot-id": 5}),
    "a transform of the future": lambda d: (
        d["partition-specs"].append({"spec-id": 9, "fields": [{"name": "p", "transform": "zorder", "source-id": 1, "field-id": 1000}]}),
        d.update({"last-partition-id": 1000}),
    )[1],
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_java_lets_pass_is_loaded(name: str) -> None:
    document = golden("mor_dv")
    RIGHT[name](document)
    parse_metadata(json.dumps(document), location="file:/t.json")


@pytest.mark.parametrize(
    "text", ['{"format-version": NaN}', '{"a": Infinity}', "[" * 100_000, '{"format-version": ' + "9" * 5000 + "}", "\ufeff", '"\ud800"']
)
def test_json_that_is_none_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError, match=r"t\.json"):
        parse_metadata(text, location="t.json")


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"\x80", b'{"a": "\xed\xa0\x80"}'])
def test_bytes_that_are_no_text_are_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"t\.json"):
        parse_metadata(data, location="t.json")


def test_another_bucket_is_the_tables_own_but_another_host_is_not() -> None:
    document = golden("mor_dv")
    home = "s3://m/t/metadata/1.metadata.json"
    document["location"] = "s3a://d/t"
    for snapshot in document["snapshots"]:
        snapshot["manifest-list"] = "s3://d/x.avro"
    parse_metadata_object(document, location=home)
    document["snapshots"][0]["manifest-list"] = "s3://other/x.avro"
    with pytest.raises(FormatError, match="another storage"):
        parse_metadata_object(document, location=home)
    document["location"] = "abfss://c@evil.example/t"
    for snapshot in document["snapshots"]:
        snapshot["manifest-list"] = "abfss://c@evil.example/x.avro"
    with pytest.raises(FormatError, match="another storage"):
        parse_metadata_object(document, location="abfss://c@account.dfs.core.windows.net/t/metadata/1.metadata.json")
