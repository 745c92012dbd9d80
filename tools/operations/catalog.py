"""Recipes of catalogs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import SetPropertiesUpdate

import icelock
from icelock.table.new_table import initial_updates
from tests.lakes.sqlite import KEYED, people
from tools.operations.place import BY_CITY, Place
from tools.operations.recipe import Outcome, Recipe, recipes

SCHEMA = people().schema
PLAIN = {"format-version": "2"}


def new(place: Place, suffix: str = "new") -> str:
    return f"{place.name}{suffix}"


def created(make: Callable[[Place], Any]) -> Callable[[Place], None]:
    """Return a use of a transaction that makes or replaces a table with rows."""

    def used(place: Place) -> None:
        transaction = make(place)
        transaction.append(place.other())
        transaction.commit_transaction()

    return used


def resumed(place: Place) -> None:
    first = place.catalog.create_table_transaction(new(place), SCHEMA, properties=KEYED)
    transaction = place.catalog.resume_create_transaction(new(place), first.staged_metadata())
    transaction.append(place.other())
    transaction.commit_transaction()


def copy_of_metadata(place: Place) -> str:
    """Return a copy of the table's metadata file: what another catalog has of the same table."""
    source = Path(urlsplit(place.table.metadata_location).path)
    copy = source.with_name(f"00009-{source.name[6:]}")
    shutil.copy(source, copy)
    return str(copy)


def without_key_id(place: Place) -> str:
    """Return a metadata file out of which the key id was edited, outside of the table."""
    data = json.loads(Path(urlsplit(place.table.metadata_location).path).read_text())
    del data["properties"]["encryption.key-id"]
    copy = place.lake.folder / "00000-edited.metadata.json"
    copy.write_text(json.dumps(data))
    return str(copy)


def stage(place: Place) -> Any:
    wanted = place.catalog.check_create(new(place), KEYED)
    return place.catalog.stage_new_table(new(place), SCHEMA, None, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, wanted)


def another(place: Place) -> Any:
    """Return a catalog of its own, whose database may go."""
    return icelock.load_catalog("another", **{**place.lake.properties(), "uri": f"sqlite:///{place.lake.folder / 'another.db'}"})


def first_commit(place: Place) -> Any:
    staged = stage(place)
    return place.catalog.stage_first_commit(staged.name(), (), initial_updates(staged.metadata))


def new_table(place: Place) -> Any:
    return place.catalog.create_table_transaction(new(place), SCHEMA, properties=KEYED)


CATALOG = [
    *recipes(
        "SqlCatalog",
        Outcome.READS,
        {
            "check_current": lambda p: p.catalog.check_current(p.table, p.catalog.pins.seen(p.table.name())),
            "check_converts": lambda p: p.catalog.check_converts(p.table),
            "check_create": lambda p: p.catalog.check_create(new(p), KEYED),
            "check_register": lambda p: p.catalog.check_register(p.table.metadata, table=p.name, location=p.table.metadata_location),
            "check_replaces_snapshots": lambda p: p.catalog.check_replaces_snapshots(p.name),
            "create_table_if_not_exists/there": lambda p: p.catalog.create_table_if_not_exists(p.name, SCHEMA, properties=KEYED),
            "create_table_transaction/not committed": lambda p: p.catalog.create_table_transaction(new(p), SCHEMA, properties=KEYED),
            "free_name": lambda p: p.catalog.free_name(new(p)),
            "identifier_to_database": lambda p: p.catalog.identifier_to_database(p.namespace),
            "identifier_to_database_and_table": lambda p: p.catalog.identifier_to_database_and_table(p.name),
            "identifier_to_tuple": lambda p: p.catalog.identifier_to_tuple(p.name),
            "list_namespaces": lambda p: p.catalog.list_namespaces(),
            "list_tables": lambda p: p.catalog.list_tables(p.namespace),
            "kept": lambda p: p.catalog.kept(p.table.name()),
            "names_for_any": lambda p: p.catalog.names_for_any([p.table.metadata_location]),
            "load_from_metadata": lambda p: p.catalog.load_from_metadata(p.table.name(), p.table.metadata_location).scan().to_arrow(),
            "load_namespace_properties": lambda p: p.catalog.load_namespace_properties(p.namespace),
            "load_table": lambda p: p.catalog.load_table(p.name).scan().to_arrow(),
            "namespace_exists": lambda p: p.catalog.namespace_exists(p.namespace),
            "namespace_from": lambda p: p.catalog.namespace_from(p.name),
            "namespace_to_string": lambda p: p.catalog.namespace_to_string(p.namespace),
            "new_metadata": lambda p: p.catalog.new_metadata(schema=SCHEMA, location="file:///tmp/x", properties=KEYED),
            "read_metadata_file": lambda p: p.catalog.read_metadata_file(p.table.metadata_location),
            "replace_table_transaction/not committed": lambda p: p.catalog.replace_table_transaction(p.name, SCHEMA),
            "stage_new_table": stage,
            "supports_server_side_planning": lambda p: p.catalog.supports_server_side_planning(),
            "table_exists": lambda p: p.catalog.table_exists(p.name),
            "table_name_from": lambda p: p.catalog.table_name_from(p.name),
            "table_of": lambda p: p.catalog.table_of(p.table.name(), p.table.metadata, p.table.metadata_location),
            "create_tables": lambda p: p.catalog.create_tables(),
            "create_namespace_if_not_exists": lambda p: p.catalog.create_namespace_if_not_exists(p.namespace),
            "close": lambda p: p.lake.catalog().close(),
            "destroy_tables": lambda p: another(p).destroy_tables(),
            "stage_first_commit": first_commit,
            "turn": lambda p: p.catalog.turn(p.table.name()),
        },
    ),
    *recipes(
        "SqlCatalog",
        Outcome.ENCRYPTED,
        {
            "create_or_replace_table_transaction": created(
                lambda p: p.catalog.create_or_replace_table_transaction(new(p), SCHEMA, properties=KEYED)
            ),
            "create_or_replace_table_transaction/there": created(
                lambda p: p.catalog.create_or_replace_table_transaction(p.name, SCHEMA, partition_spec=BY_CITY)
            ),
            "create_table_transaction": created(lambda p: p.catalog.create_table_transaction(new(p), SCHEMA, properties=KEYED)),
            "replace_table_transaction": created(lambda p: p.catalog.replace_table_transaction(p.name, SCHEMA, partition_spec=BY_CITY)),
            "resume_create_transaction": resumed,
        },
    ),
    *recipes(
        "SqlCatalog",
        Outcome.METADATA,
        {
            "commit_table": lambda p: p.catalog.commit_table(p.table, (), (SetPropertiesUpdate(updates={"owner": "me"}),)),
            "create_table": lambda p: p.catalog.create_table(new(p), SCHEMA, properties=KEYED),
            "create_table_if_not_exists": lambda p: p.catalog.create_table_if_not_exists(new(p), SCHEMA, properties=KEYED),
            "register_table": lambda p: p.catalog.register_table(new(p), copy_of_metadata(p)),
        },
    ),
    *recipes("SqlCatalog", Outcome.REMOVES, {"purge_table": lambda p: p.catalog.purge_table(p.name)}),
    *recipes(
        "SqlCatalog",
        Outcome.CATALOG,
        {
            "create_namespace": lambda p: p.catalog.create_namespace(f"{p.namespace}{p.name.rpartition('.')[2]}"),
            "drop_namespace": lambda p: p.catalog.drop_namespace(p.empty),
            "drop_table": lambda p: p.catalog.drop_table(p.name),
            "rename_table": lambda p: p.catalog.rename_table(p.name, new(p)),
            "update_namespace_properties": lambda p: p.catalog.update_namespace_properties(p.namespace, updates={"owner": p.name}),
        },
    ),
    *recipes(
        "SqlCatalog",
        Outcome.REFUSED,
        {
            "commit_conversion": lambda p: p.catalog.commit_conversion(p.table, p.table.metadata, ()),
            "commit_undo": lambda p: p.catalog.commit_undo(p.table, p.table.metadata),
            "commit_table/key": lambda p: p.catalog.commit_table(
                p.table, (), (SetPropertiesUpdate(updates={"encryption.key-id": "keyB"}),)
            ),
            "create_namespace/key": lambda p: p.catalog.create_namespace("keyed", {"encryption.key-id": "keyA"}),
            "create_table/version 2": lambda p: p.catalog.create_table(new(p), SCHEMA, properties={**KEYED, **PLAIN}),
            "create_table/version 3 without key": lambda p: p.catalog.create_table(new(p), SCHEMA, properties={"format-version": "3"}),
            "create_table/misspelt": lambda p: p.catalog.create_table(new(p), SCHEMA, properties={"encryption.keyid": "keyA"}),
            "create_table_transaction/version 2": lambda p: p.catalog.create_table_transaction(
                new(p), SCHEMA, properties={**KEYED, **PLAIN}
            ),
            "stage_new_table/append": lambda p: stage(p).append(p.other()),
            "register_table/overwrite": lambda p: p.catalog.register_table(p.name, p.table.metadata_location, overwrite=True),
            "replace_table_transaction/other key": lambda p: p.catalog.replace_table_transaction(
                p.name, SCHEMA, properties={"encryption.key-id": "keyB"}
            ),
            "update_namespace_properties/key": lambda p: p.catalog.update_namespace_properties(
                p.namespace, updates={"encryption.key-id": "keyA"}
            ),
        },
    ),
    Recipe(
        "SqlCatalog.register_table/edited",
        lambda p: p.catalog.register_table(new(p), without_key_id(p)),
        Outcome.REFUSED,
        icelock.IntegrityError,
    ),
    *recipes("CreateTransaction", Outcome.ENCRYPTED, {"commit_transaction": created(new_table)}),
    *recipes("CreateTransaction", Outcome.READS, {"staged_metadata": lambda p: new_table(p).staged_metadata()}),
    *(
        Recipe(f"SqlCatalog.{name}", use, Outcome.REFUSED, NotImplementedError)
        for name, use in {
            "create_view": lambda p: p.catalog.create_view(new(p), None, None),
            "drop_view": lambda p: p.catalog.drop_view(new(p)),
            "list_views": lambda p: p.catalog.list_views(p.namespace),
            "load_view": lambda p: p.catalog.load_view(new(p)),
            "register_view": lambda p: p.catalog.register_view(new(p), ""),
            "view_exists": lambda p: p.catalog.view_exists(new(p)),
        }.items()
    ),
    Recipe(
        "SqlCatalog.create_table/there",
        lambda p: p.catalog.create_table(p.name, SCHEMA, properties=KEYED),
        Outcome.REFUSED,
        TableAlreadyExistsError,
    ),
    Recipe("SqlCatalog.load_table/not there", lambda p: p.catalog.load_table("db.nope"), Outcome.REFUSED, NoSuchTableError),
    Recipe("icelock.load_catalog", lambda p: icelock.load_catalog("test", **p.lake.properties()), Outcome.READS),
]


RECIPES = CATALOG
