"""Recipes of transactions and of what makes snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.manifest import DATA_FILE_TYPE
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import StringType
from pyroaring import BitMap64

from icelock.table.commit.rewrite import FileGroup
from icelock.table.rows.delete import DeleteByFilter
from icelock.table.rows.file_rewrite import EngineWork
from tools.operations.place import Place
from tools.operations.recipe import Outcome, Recipe, recipes
from tools.operations.table import updated

Staged = Callable[[Place, Any], object]
MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}


def staged(use: Staged, properties: dict[str, str] | None = None) -> Callable[[Place], None]:
    """Return a use of a transaction that is committed then, on a table that has these properties before."""

    def used(place: Place) -> None:
        if properties:
            place.table.transaction().set_properties(properties).commit_transaction()
        with place.table.transaction() as transaction:
            use(place, transaction)

    return used


def live(place: Place) -> list[Any]:
    return list(place.table.scan().plan_files())


def change_rows(place: Place, transaction: Any) -> None:
    """Delete the first row of a file as an engine tells it: by position."""
    change = EngineWork(deleted=[(live(place)[0], BitMap64([0]))])
    transaction.change_rows(change, row_filter=AlwaysTrue(), base_snapshot_id=place.table.current_snapshot().snapshot_id)


def rewrite_data_files(place: Place, transaction: Any) -> None:
    """Put files in the place of those that are there, as if they had the same rows."""
    group = FileGroup(removed=[task.file for task in live(place)], added=place.written(transaction))
    transaction.rewrite_data_files([group], transaction.table_metadata)


def several(place: Place, transaction: Any) -> None:
    transaction.append(place.other())
    transaction.delete("id = 3")
    transaction.update_schema().add_column("more", StringType()).commit()
    transaction.set_properties(owner="me")


TRANSACTION = [
    *recipes(
        "Transaction",
        Outcome.READS,
        {
            "commit_transaction": lambda p: p.table.transaction().commit_transaction(),
            "manage_snapshots": lambda p: p.table.transaction().manage_snapshots(),
            "table_metadata": lambda p: p.table.transaction().table_metadata,
            "update_schema": lambda p: p.table.transaction().update_schema(),
            "update_snapshot": lambda p: p.table.transaction().update_snapshot(),
            "update_sort_order": lambda p: p.table.transaction().update_sort_order(),
            "update_spec": lambda p: p.table.transaction().update_spec(),
            "upgrade_table_version": lambda p: p.table.transaction().upgrade_table_version(3),
        },
    ),
    *recipes(
        "Transaction",
        Outcome.ENCRYPTED,
        {
            "add_files/reencrypt": staged(lambda p, tx: tx.add_files([p.plain_file], reencrypt=True)),
            "append": staged(lambda p, tx: tx.append(p.other())),
            "append/avro": staged(lambda p, tx: tx.append(p.other()), {"write.format.default": "avro"}),
            "append/merged manifests": staged(
                lambda p, tx: tx.append(p.other()), {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
            ),
            "append_data_files": staged(lambda p, tx: tx.append_data_files(p.written(tx))),
            "change_rows": staged(change_rows),
            "commit_transaction/several": staged(several),
            "delete": staged(lambda _, tx: tx.delete("id = 3")),
            "delete/merge-on-read": staged(lambda _, tx: tx.delete("id = 3"), MERGE_ON_READ),
            "dynamic_partition_overwrite": staged(lambda p, tx: tx.dynamic_partition_overwrite(p.other())),
            "overwrite": staged(lambda p, tx: tx.overwrite(p.other())),
            "overwrite/merge-on-read": staged(lambda p, tx: tx.overwrite(p.other(), overwrite_filter="id < 4"), MERGE_ON_READ),
            "overwrite_data_files": staged(lambda p, tx: tx.overwrite_data_files(p.written(tx), [task.file for task in live(p)])),
            "overwrite_with_data_files": staged(lambda p, tx: tx.overwrite_with_data_files(p.written(tx))),
            "replace_partitions": staged(lambda p, tx: tx.replace_partitions(p.written(tx))),
            "rewrite_data_files": staged(rewrite_data_files),
            "upsert": staged(lambda _, tx: tx.upsert(updated(), join_cols=["id"])),
            "upsert/merge-on-read": staged(lambda _, tx: tx.upsert(updated(), join_cols=["id"]), MERGE_ON_READ),
        },
    ),
    *recipes(
        "Transaction",
        Outcome.METADATA,
        {
            "remove_properties": staged(lambda _, tx: tx.remove_properties("write.object-storage.enabled")),
            "set_properties": staged(lambda _, tx: tx.set_properties({"owner": "me"})),
        },
    ),
    *recipes(
        "Transaction",
        Outcome.REFUSED,
        {
            "add_files": staged(lambda p, tx: tx.add_files([p.plain_file])),
            "append_data_files/plain": staged(lambda p, tx: tx.append_data_files(described_as_plain(p, tx))),
            "remove_properties/key": staged(lambda _, tx: tx.remove_properties("encryption.key-id")),
            "set_properties/key": staged(lambda _, tx: tx.set_properties({"encryption.key-id": "keyB"})),
            "set_properties/key length": staged(lambda _, tx: tx.set_properties({"encryption.data-key-length": "32"})),
            "set_properties/misspelt": staged(lambda _, tx: tx.set_properties({"encryption.keyid": "keyB"})),
            "set_properties/ORC": staged(lambda _, tx: tx.set_properties({"write.format.default": "orc"})),
            "update_location": staged(lambda _, tx: tx.update_location("file:///tmp/elsewhere")),
            "update_statistics": staged(lambda _, tx: tx.update_statistics()),
            "upgrade_table_version/other": staged(lambda _, tx: tx.upgrade_table_version(2)),
        },
    ),
]


def described_as_plain(place: Place, transaction: Any) -> list[Any]:
    """Return a file that is described as if it were plain."""
    (file,) = place.written(transaction, place.other().slice(0, 1))
    file._data[[field.name for field in DATA_FILE_TYPE[3].fields].index("key_metadata")] = None
    return [file]


UPDATE_SNAPSHOT = [
    *recipes(
        "UpdateSnapshot",
        Outcome.READS,
        {
            "fast_append": lambda p: p.table.transaction().update_snapshot().fast_append(),
            "merge_append": lambda p: p.table.transaction().update_snapshot().merge_append(),
            "overwrite": lambda p: p.table.transaction().update_snapshot().overwrite(),
            "replace_partitions": lambda p: p.table.transaction().update_snapshot().replace_partitions(),
        },
    ),
    *recipes("UpdateSnapshot", Outcome.REFUSED, {"delete": lambda p: p.table.transaction().update_snapshot().delete()}),
]


def producing(way: str, use: Callable[[Place, Any, Any], object]) -> Callable[[Place], None]:
    """Return a use of a snapshot producer, which is committed with its transaction."""

    def used(place: Place) -> None:
        with place.table.transaction() as transaction, getattr(transaction.update_snapshot(), way)() as producer:
            use(place, transaction, producer)

    return used


def looking(way: str, use: Callable[[Place, Any], object]) -> Callable[[Place], object]:
    """Return a use of a snapshot producer that is not committed."""
    return lambda place: use(place, getattr(place.table.transaction().update_snapshot(), way)())


def added(place: Place, transaction: Any, producer: Any) -> None:
    for file in place.written(transaction):
        producer.append_data_file(file)


def committed(way: str) -> Callable[[Place], None]:
    """Return a use of a producer's ``commit``."""

    def used(place: Place) -> None:
        transaction = place.table.transaction()
        producer = getattr(transaction.update_snapshot(), way)()
        added(place, transaction, producer)
        producer.commit()
        transaction.commit_transaction()

    return used


def manifest(place: Place, producer: Any) -> None:
    with producer.new_manifest_writer(place.table.spec()):
        pass


def producer_recipes(owner: str, way: str) -> list[Recipe]:
    """Return what every producer has."""
    return [
        *recipes(
            owner,
            Outcome.READS,
            {
                "fetch_manifest_entry": looking(way, lambda p, made: made.fetch_manifest_entry(manifests(p)[0])),
                "schema": looking(way, lambda _, made: made.schema()),
                "snapshot_id": looking(way, lambda _, made: made.snapshot_id),
                "spec": looking(way, lambda p, made: made.spec(p.table.spec().spec_id)),
                "named_columns": looking(way, lambda p, made: list(made.named_columns(p.table.schema()))),
                "delete_by_predicate": looking(way, lambda _, made: made.delete_by_predicate(AlwaysTrue())),
            },
        ),
        *recipes(owner, Outcome.ENCRYPTED, {"append_data_file": producing(way, added), "commit": committed(way)}),
        Recipe(f"{owner}.new_manifest_writer", looking(way, manifest), Outcome.PART),
        Recipe(
            f"{owner}.new_manifest_output", looking(way, lambda _, made: made.new_manifest_output()), Outcome.REFUSED, NotImplementedError
        ),
    ]


def manifests(place: Place) -> list[Any]:
    table = place.table
    return list(table.current_snapshot().manifests(table.io))


def remove_a_file(place: Place, transaction: Any, producer: Any) -> None:
    """Replace a file by one of another partition."""
    for file in place.written(transaction, place.other().slice(0, 1)):
        producer.append_data_file(file)
    other = next(task.file for task in live(place) if task.file.partition[0] != place.other()["city"][0].as_py())
    producer.delete_data_file(other)


def removing_producer_recipes(owner: str, way: str) -> list[Recipe]:
    """Return what producers have that remove files."""
    return [
        *producer_recipes(owner, way),
        *recipes(
            owner,
            Outcome.READS,
            {
                "planned_on": looking(way, lambda p, made: made.planned_on(p.first)),
                "reads_data": looking(way, lambda _, made: made.reads_data),
            },
        ),
        *recipes(owner, Outcome.ENCRYPTED, {"delete_data_file": producing(way, remove_a_file), "apply": producing(way, deleted_by_filter)}),
    ]


def deleted_by_filter(place: Place, transaction: Any, producer: Any) -> None:
    change = DeleteByFilter(transaction.staged, EqualTo("id", 4), case_sensitive=True, branch=MAIN_BRANCH, follow_rows=True)
    producer.apply(change)
    for file in place.written(transaction, place.other().slice(0, 1)):
        producer.append_data_file(file)


PRODUCERS = [
    *producer_recipes("FastAppend", "fast_append"),
    *producer_recipes("MergeAppend", "merge_append"),
    *removing_producer_recipes("Overwrite", "overwrite"),
    *removing_producer_recipes("ReplacePartitions", "replace_partitions"),
    Recipe("FastAppend.delete_data_file", looking("fast_append", lambda p, made: made.delete_data_file(live(p)[0].file)), Outcome.REFUSED),
    Recipe(
        "MergeAppend.delete_data_file", looking("merge_append", lambda p, made: made.delete_data_file(live(p)[0].file)), Outcome.REFUSED
    ),
]
RECIPES = [*TRANSACTION, *UPDATE_SNAPSHOT, *PRODUCERS]
