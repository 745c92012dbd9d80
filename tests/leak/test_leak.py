"""Values of rows and keys are found nowhere but in encrypted files, after all operations, failures and a crash.

C-12, C-32, J-05; docs/threat-model.md names what metadata.json holds. Nothing is deleted while this runs: storage keeps what was ever
written, so that a file that came and went is searched too.
"""

from __future__ import annotations

import base64
import copy
import io
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyiceberg.expressions import EqualTo
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import StringType
from rich.console import Console
from rich.traceback import Traceback

import icelock
from icelock import maintenance
from icelock.errors import IcelockError
from icelock.secret import SecretBytes
from tests.helpers.counting_kms import KEYS
from tests.helpers.places import python_path
from tests.lakes.sqlite import TestLake
from tests.leak import canary
from tests.leak.canary import NUMBER, ROWS, SAID, SNAPSHOT, SpyEntropy, rows
from tests.leak.needles import Found, Needles, texts

TABLE = "db.secret"
AVRO = "db.avro"
MERGED = {"write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}
ALL_ROWS = {**ROWS, "number as bytes": NUMBER.to_bytes(8, "little").decode("latin-1")}


class WithFields(logging.Formatter):
    """A line, and all fields of its record, as a formatter of JSON has them."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{super().format(record)} {json.dumps(record.__dict__, default=repr)}"


class KeepingFileIO(PyArrowFileIO):
    """Storage that moves what is deleted aside instead."""

    def delete(self, location: Any) -> None:
        text = location if isinstance(location, str) else location.location
        path = Path(text.removeprefix("file://"))
        grave = Path(os.environ["ICELOCK_TEST_GRAVE"])
        path.rename(grave / f"{len(list(grave.iterdir()))}-{path.name}")


@dataclass(repr=False)
class Scene:
    """What happened: the lake, all keys that were drawn, what was logged, the errors, and what was shown of objects."""

    folder: Path
    lake: TestLake
    keys: dict[str, bytes] = field(default_factory=dict)
    log: io.StringIO = field(default_factory=io.StringIO)
    shown: dict[str, bytes] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)

    @property
    def properties(self) -> dict[str, str]:
        return self.lake.properties(**{"py-io-impl": "tests.leak.test_leak.KeepingFileIO"})

    def stored(self) -> Iterator[tuple[str, bytes]]:
        for root in (self.lake.warehouse, self.folder / "grave"):
            yield from ((str(path.relative_to(self.folder)), path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file())

    def fails(self, name: str, use: Callable[[], object]) -> None:
        """Keep the error of a use that fails."""
        with pytest.raises((IcelockError, OSError)) as caught:
            use()
        self.errors[name] = caught.value


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Do everything once."""
    folder = tmp_path_factory.mktemp("leak")
    for name in ("tmp", "grave"):
        (folder / name).mkdir()
    made = Scene(folder=folder, lake=TestLake(folder))
    handler = logging.StreamHandler(made.log)
    handler.setFormatter(WithFields())
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder / "tmp"))
        patch.setenv("ICELOCK_TEST_GRAVE", str(folder / "grave"))
        patch.setattr(tempfile, "tempdir", None)
        patch.setattr(trace, "get_tracer", provider.get_tracer)
        secrets = spy_on_secrets(patch)
        spy = SpyEntropy()
        catalog = canary.open_catalog(made.properties, spy)
        catalog.create_namespace("db")
        operate(catalog)
        crash(made)
        look(made, catalog)
        fail(made, catalog)
    made.shown["spans"] = "".join(span.to_json() for span in exporter.get_finished_spans()).encode()
    root.removeHandler(handler)
    root.setLevel(level)
    made.keys |= {f"drawn {n}": key for n, key in enumerate(spy.keys)}
    made.keys |= {f"secret {n}": key for n, key in enumerate(sorted(secrets)) if len(key) in (16, 24, 32)}
    made.keys |= {f"master {name}": key for name, key in KEYS.items()}
    return made


def spy_on_secrets(patch: pytest.MonkeyPatch) -> set[bytes]:
    """Note every value that is made a ``SecretBytes``: keys that were drawn, unwrapped or read."""
    seen: set[bytes] = set()
    inner = SecretBytes.__init__

    def noting(self: SecretBytes, value: bytes) -> None:
        seen.add(bytes(value))
        inner(self, value)

    patch.setattr(SecretBytes, "__init__", noting)
    return seen


def operate(catalog: Any) -> None:
    """Use each operation that moves rows."""
    table = canary.make(catalog, TABLE)
    table.append(rows(), snapshot_properties=SNAPSHOT)
    table.append(rows(100, name=ROWS["deleted"]))
    first = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_tag(first, "kept").create_branch(first, "side").commit()
    table.append(rows(200), branch="side")
    table.delete(EqualTo("name", ROWS["deleted"]))
    table.delete(EqualTo("id", NUMBER + 3))
    table.overwrite(rows(300), overwrite_filter=EqualTo("id", NUMBER + 4))
    table.dynamic_partition_overwrite(rows(400))
    with table.transaction() as transaction:
        transaction.set_properties(MERGED)
        transaction.delete(EqualTo("id", NUMBER + 405))
    table.upsert(rows(410, 60, name=ROWS["upserted"]), join_cols=["id"])
    table.update_schema().add_column("more", StringType(), default_value=SAID["default"]).commit()
    table.update_spec().add_field("id", "bucket[4]", "id_bucket").commit()
    table.update_sort_order().asc("id", "identity").commit()
    table.append(rows(500))
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
        transaction.append(rows(600))
    avro = canary.make(catalog, AVRO, **{"write.format.default": "avro", "encryption.data-key-length": "32", **MERGED})
    avro.append(rows())
    avro.delete(EqualTo("id", NUMBER + 3))
    catalog.rename_table(AVRO, "db.renamed")
    canary.make(catalog, "db.empty")
    canary.make(catalog, "db.gone").append(rows())
    catalog.purge_table("db.gone")
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()
    assert table.scan(row_filter=EqualTo("name", ROWS["dictionary"])).to_arrow().num_rows
    assert catalog.load_table("db.renamed").scan().count() == 49


def crash(scene: Scene) -> None:
    """Let a child process be killed between its files and its commit."""
    keys = scene.folder / "keys-of-the-child"
    told = json.dumps({"properties": scene.properties, "keys": str(keys)})
    ran = subprocess.run(
        [sys.executable, "-m", "tests.leak.canary", TABLE],
        input=told.encode(),
        capture_output=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": python_path()},
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()
    assert b"Loaded FileIO" in ran.stderr
    scene.keys |= {f"child {n}": bytes.fromhex(key) for n, key in enumerate(json.loads(keys.read_text()))}
    scene.shown["child's output"] = ran.stdout + ran.stderr
    keys.unlink()


def look(scene: Scene, catalog: Any) -> None:
    """Show every object that has to do with keys, in each way that objects are shown."""
    table = catalog.load_table(TABLE)
    scan = table.scan()
    manager = table.io.manager
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io)
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]
    list_key = manager.open_manifest_list_key(snapshot.key_id)
    transaction = table.transaction()
    objects = {
        "catalog": catalog,
        "encryption": catalog.encryption,
        "kms": catalog.encryption.kms(),
        "cache": catalog.encryption._cache,
        "table": table,
        "metadata": table.metadata,
        "io": table.io,
        "manager": manager,
        "key entries": list(table.metadata.encryption_keys),
        "key metadata": list_key,
        "file key": manager.mint_file_key(),
        "sealed key": manager.seal_manifest_list_key(list_key),
        "input file": table.io.new_input(snapshot.manifest_list),
        "output file": table.io.new_encrypted_output(f"{table.location()}/metadata/never-made.avro"),
        "snapshot": snapshot,
        "manifests": manifests,
        "entries": entries,
        "data files": [entry.data_file for entry in entries],
        "scan": scan,
        "plan": scan.plan_files(),
        "scan tasks": scan.scan_tasks(),
        "read context": scan.read_context(),
        "transaction": transaction,
        "write context": transaction.staged.write_context(),
        "producer": transaction.update_snapshot().fast_append(),
        "leftovers": maintenance.leftovers(table),
        "inspected files": [
            getattr(table.inspect, name)().to_pylist()
            for name in ("files", "all_files", "entries", "manifests", "all_manifests", "delete_files")
        ],
    }
    for name, value in objects.items():
        for item in value if isinstance(value, list) else [value]:
            for way, shown in ways(item):
                scene.shown[f"{way} of {name}"] = scene.shown.get(f"{way} of {name}", b"") + shown


def ways(value: Any) -> Iterator[tuple[str, bytes]]:
    """Show a value as text and, if it lets, as a pickle."""
    yield "repr", repr(value).encode()
    yield "str", str(value).encode()
    yield "format", f"{value}".encode()
    if hasattr(value, "model_dump_json"):
        yield "json", value.model_dump_json().encode()
    for way, copied in (("pickle", pickle.dumps), ("copy", copy.deepcopy)):
        try:
            made = copied(value)
        except Exception as e:  # noqa: BLE001 - it does not let; what it says is searched
            yield way, repr(e).encode()
        else:
            yield way, made if isinstance(made, bytes) else repr(made).encode()


def damaged(path: Path) -> Callable[[], None]:
    """Flip bits all over a file but for its magic bytes; return what puts it back."""
    good = path.read_bytes()
    path.write_bytes(good[:8] + bytes(byte ^ (i % 7 == 0) for i, byte in enumerate(good[8:-8])) + good[-8:])
    return lambda: path.write_bytes(good) and None


def flipped(key: dict[str, Any]) -> dict[str, Any]:
    blob = bytearray(base64.b64decode(key["encrypted-key-metadata"]))
    blob[-1] ^= 1
    return {**key, "encrypted-key-metadata": base64.b64encode(blob).decode()}


def fail(scene: Scene, catalog: Any) -> None:
    """Let each kind of thing go wrong."""
    table = catalog.load_table(TABLE)
    snapshot = table.current_snapshot()
    (first, *_) = table.scan().plan_files()
    (manifest, *_) = snapshot.manifests(table.io)
    vector = next(file for task in table.scan().plan_files() for file in task.delete_files)
    avro = catalog.load_table("db.renamed")
    files = {
        "data file": (first.file.file_path, table),
        "manifest": (manifest.manifest_path, table),
        "manifest list": (snapshot.manifest_list, table),
        "deletion vector": (vector.file_path, table),
        "Avro file": (next(iter(avro.scan().plan_files())).file.file_path, avro),
    }
    for name, (location, owner) in files.items():
        restore = damaged(Path(location.removeprefix("file://")))
        scene.fails(f"damaged {name}", lambda owner=owner: owner.scan().to_arrow())
        restore()
    wrong = {**scene.properties, "encryption.kek-cache-seconds": "0"}
    fresh = canary.open_catalog(wrong, SpyEntropy())
    scene.lake.calls.deny("unwrap")
    scene.fails("unwrap denied", lambda: fresh.load_table(TABLE).scan().to_arrow())
    scene.fails("append with unwrap denied", lambda: fresh.load_table(TABLE).append(rows()))
    scene.lake.calls.deny("wrap")
    scene.fails("create with wrap denied", lambda: canary.make(fresh, "db.denied"))
    # The KEK that was not wrapped never was one: it is not among the keys.
    scene.fails("first append with wrap denied", lambda: fresh.load_table("db.empty").append(rows()))
    scene.lake.calls.deny("")
    text = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    for name, keeps in (("list key", lambda key: "properties" in key), ("KEK", lambda key: "properties" not in key)):
        edited = {**text, "encryption-keys": [key if keeps(key) else flipped(key) for key in text["encryption-keys"]]}
        path = scene.folder / f"00000-{name.replace(' ', '-')}.metadata.json"
        path.write_text(json.dumps(edited))
        scene.fails(f"changed {name}", lambda path=path: icelock.StaticTable.from_metadata(str(path), scene.properties).scan().to_arrow())
    scene.fails("no KMS", lambda: scene.lake.without_kms().load_table(TABLE).scan().to_arrow())
    scene.fails("other columns", lambda: table.append(rows().rename_columns(["id", "name", "part", "tags", "nope"])))
    scene.fails("another location", lambda: table.transaction().update_location("file:///tmp/elsewhere"))
    scene.fails("key changed", lambda: table.transaction().set_properties({"encryption.key-id": "keyB"}))

    def no_disk(*_: Any, **__: Any) -> None:
        msg = "No space left on device"
        raise OSError(msg)

    for name in ("new_output", "new_input"):
        with pytest.MonkeyPatch.context() as patch:
            broken = catalog.load_table(TABLE)
            patch.setattr(type(broken.storage), name, no_disk)
            scene.fails(f"storage without {name}", lambda broken=broken: broken.append(rows(9000)))
    with pytest.MonkeyPatch.context() as patch:
        unknown = catalog.load_table(TABLE)
        patch.setattr(catalog, "commit_table", no_disk)
        scene.fails("unknown outcome", lambda: unknown.append(rows(9100)))


def none_of(found: Iterator[Found]) -> None:
    assert list(dict.fromkeys(found)) == []


@pytest.fixture(scope="module")
def keys(scene: Scene) -> Needles:
    return Needles(scene.keys)


def test_the_search_has_what_to_search_for(scene: Scene) -> None:
    """All kinds of keys, all kinds of files, logs and errors: else the tests below say nothing."""
    assert len({key for name, key in scene.keys.items() if name.startswith("drawn")}) > 50
    assert {len(key) for key in scene.keys.values()} >= {16, 32}
    assert sum(name.startswith("child") for name in scene.keys) >= 3
    names = [name for name, _ in scene.stored()]
    for ending in (".parquet", ".avro", ".puffin", ".metadata.json"):
        assert any(name.endswith(ending) for name in names), ending
    assert sum(name.startswith("grave") for name in names) > 10
    assert len(scene.errors) >= 14
    assert len(scene.log.getvalue().splitlines()) > 20


def test_storage_holds_values_in_encrypted_files_only(scene: Scene) -> None:
    for name, data in scene.stored():
        none_of(texts(ALL_ROWS, name, data))
        none_of(texts(ALL_ROWS, f"path {name}", name.encode()))
        if not name.endswith(".metadata.json"):
            assert data[:4] in {b"AGS1", b"PARE"}, name
            none_of(texts(SAID, name, data))


def test_metadata_json_holds_what_the_threat_model_says(scene: Scene) -> None:
    """Comments, defaults and properties are there by the format: this test is the proof that the search finds them."""
    metadata = b"".join(data for name, data in scene.stored() if name.endswith(".metadata.json"))
    for name, value in SAID.items():
        assert value.encode() in metadata, name


def test_storage_holds_no_key(scene: Scene, keys: Needles) -> None:
    for name, data in scene.stored():
        none_of(keys.find(name, data))


def test_catalog_database_and_temporary_files_hold_nothing(scene: Scene, keys: Needles) -> None:
    places = [scene.folder / "catalog.db", *(path for path in (scene.folder / "tmp").rglob("*") if path.is_file())]
    for path in places:
        none_of(keys.find(path.name, path.read_bytes()))
        none_of(texts({**ALL_ROWS, **SAID}, path.name, path.read_bytes()))


def test_all_kinds_of_events_and_spans_were_told(scene: Scene) -> None:
    log, spans = scene.log.getvalue(), scene.shown["spans"].decode()
    for event in ("commit", "create", "drop", "rename", "kms-call", "key-use", "refusal"):
        assert f"event={event} " in log, event
        assert f'"event": "{event}"' in log, event
    for name in (f"commit {TABLE}", f"read {TABLE}", f"plan {TABLE}", f"load {TABLE}", f"count {AVRO[:3]}renamed", "wrap CountingKms"):
        assert f'"name": "{name}"' in spans, name
    assert '"error.type": "IntegrityError"' in spans


def test_logs_hold_no_key_and_no_value(scene: Scene, keys: Needles) -> None:
    for name, data in {"log": scene.log.getvalue().encode(), "child": scene.shown["child's output"], "spans": scene.shown["spans"]}.items():
        none_of(keys.find(name, data))
        none_of(texts(ALL_ROWS, name, data))


def test_no_object_shows_a_key(scene: Scene, keys: Needles) -> None:
    for name, data in scene.shown.items():
        none_of(keys.find(name, data))


def test_errors_show_no_key_and_no_value(scene: Scene, keys: Needles) -> None:
    for name, error in scene.errors.items():
        text = "".join(traceback.format_exception(error)).encode() + repr(error).encode()
        none_of(keys.find(name, text))
        none_of(texts({k: v for k, v in ALL_ROWS.items() if k != "number"}, name, text))


def test_errors_with_local_variables_show_no_key(scene: Scene, keys: Needles, monkeypatch: pytest.MonkeyPatch) -> None:
    """As error trackers and rich record them; rich without the colours of the source, which take half of the time."""
    monkeypatch.setattr(Traceback, "_guess_lexer", lambda *_: "text")
    for name, error in scene.errors.items():
        plain = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format()).encode()
        none_of(keys.find(f"{name}, locals", plain))
        shown = Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True, locals_max_string=10_000)
        out = io.StringIO()
        Console(file=out, width=100_000).print(shown)
        none_of(keys.find(f"{name}, rich", out.getvalue().encode()))


def test_paths_hold_partition_values_unless_told_otherwise(tmp_path: Path) -> None:
    """Iceberg's own layout, which Java writes too: docs/threat-model.md names it, and the setting that takes values out of paths."""
    lake = TestLake(tmp_path)
    lake.catalog().create_namespace("db")
    catalog = lake.catalog()
    for name, properties, there in (
        ("db.default", {}, True),
        ("db.hashed", {"write.object-storage.enabled": "true"}, True),
        ("db.without", canary.NO_VALUES_IN_PATHS, False),
    ):
        table = catalog.create_table(name, canary.SCHEMA, partition_spec=canary.BY_PART, properties={**canary.KEYED, **properties})
        table.append(rows())
        paths = [path for path in lake.files() if path.endswith(".parquet") and f"/{name[3:]}/" in path]
        assert len(paths) == 1
        assert (ROWS["partition"] in paths[0]) is there
