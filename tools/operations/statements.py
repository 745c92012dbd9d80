"""Recipes of Spark's own statements, which ``register`` makes known, and of the procedures that they call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.errors import AnalysisException

from icelock.errors import PolicyError
from icelock.maintenance import leftovers
from tests.lakes.sqlite import KEY
from tools.operations.recipe import Outcome, Recipe, recipes

Use = Callable[[Any], object]
LONG_AGO = timedelta(days=30)
NEVER = "timestamp'2100-01-01 00:00:00'"


def statement(*texts: str) -> Use:
    """Return a use of statements: ``{}`` is the table, ``{name}`` its name in the catalog, ``{key}`` the property that names a key."""

    def use(place: Any) -> None:
        words = {"{}": place.full, "{name}": place.name, "{key}": KEY, "{empty}": place.empty, "{first}": str(place.first)}
        for text in texts:
            done = text
            for word, value in words.items():
                done = done.replace(word, value)
            place.spark.sql(done).collect()

    return use


def called(owner: str, outcome: Outcome, calls: Mapping[str, str], error: type[Exception] = PolicyError) -> list[Recipe]:
    """Return recipes of procedures by their arguments; after a slash a name has a variant."""
    uses = {name: statement(f"call test.system.{name.partition('/')[0]}({arguments})") for name, arguments in calls.items()}
    return recipes(owner, outcome, uses, error)


def orphans(place: Any) -> None:
    """Remove what a write of long ago left."""
    then = (datetime.now(UTC) - LONG_AGO).timestamp()
    for file in leftovers(place.table).files:
        os.utime(file.path, (then, then))
    statement("call test.system.remove_orphan_files('{name}')")(place)


def files_added(place: Any) -> None:
    """Add the rows of a plain file."""
    statement(f"call test.system.add_files('{{name}}', 'parquet.`{place.plain_file}`')")(place)


STATEMENTS = [
    *recipes(
        "spark",
        Outcome.ENCRYPTED,
        {
            "register/create table as": statement("create table {}new {key} as select 1 as a"),
            "register/delete": statement("delete from {} where id in (select max(id) from {})"),
            "register/delete where": statement("delete from {} where id < 4"),
            "register/insert": statement("insert into {} select * from {}"),
            "register/insert into a branch": statement("insert into {}.branch_side values (90, 'n', 'x')"),
            "register/insert overwrite": statement("insert overwrite {} values (90, 'n', 'x')"),
            "register/merge": statement("merge into {} t using {} s on t.id = s.id + 1 when matched then update set *"),
            "register/merge with schema evolution": statement(
                "merge with schema evolution into {} t using (select 3L id, 'n' name, 'x' city, 1 more) s on t.id = s.id "
                "when matched then update set * when not matched then insert *"
            ),
            "register/replace table as": statement("create or replace table {} as select 1 as a"),
            "register/replace where": statement("insert into {} replace where id < 4 values (3, 'n', 'x')"),
            "register/truncate": statement("truncate table {}"),
            "register/update": statement("update {} set city = upper(city) where id > 3"),
        },
    ),
    *recipes(
        "spark",
        Outcome.METADATA,
        {
            "register/alter table": statement("alter table {} add column more int"),
            "register/create table": statement("create table {}new (a int) {key}"),
            "register/set properties": statement("alter table {} set tblproperties ('comment' = 'mine')"),
        },
    ),
    *recipes(
        "spark",
        Outcome.CATALOG,
        {
            "register/create namespace": statement("create namespace test.more_{empty}"),
            "register/drop namespace": statement("drop namespace test.{empty}"),
            "register/drop table": statement("drop table {}"),
            "register/rename table": statement("alter table {} rename to {name}moved"),
        },
    ),
    Recipe("spark.register/drop table purge", statement("drop table {} purge"), Outcome.REMOVES),
    *recipes(
        "spark",
        Outcome.READS,
        {
            "register/cache table": statement("cache table {}", "select count(*) from {}", "uncache table {}"),
            "register/metadata tables": statement("select * from {}.files", "select * from {}.snapshots", "select * from {}.partitions"),
            "register/select": statement("select count(*) from {}"),
            "register/show": statement("show tables in test.db", "describe table extended {}", "show create table {}"),
            "register/version as of": statement("select count(*) from {} version as of {first}", "select count(*) from {}.tag_first"),
        },
    ),
    *recipes(
        "spark",
        Outcome.REFUSED,
        {
            "register/plain table": statement("create table {}new as select 1 as a"),
            "register/plain table, empty": statement("create table {}new (a int)"),
            "register/unset the key": statement("alter table {} unset tblproperties ('encryption.key-id')"),
        },
    ),
    Recipe("spark.register/view", statement("create view test.db.seen as select 1 as a"), Outcome.REFUSED, AnalysisException),
]
PROCEDURES = [
    *called(
        "call",
        Outcome.METADATA,
        {
            "add_partition_field": "'{name}', 'bucket(4, id)'",
            "create_branch": "'{name}', 'more'",
            "create_tag": "'{name}', 'more', {first}",
            "drop_branch": "'{name}', 'side'",
            "drop_partition_field": "'{name}', 'city'",
            "drop_tag": "'{name}', 'first'",
            "fast_forward": "'{name}', 'side', 'main'",
            "rollback_to_snapshot": "'{name}', {first}",
            "set_current_snapshot": "table => '{name}', ref => 'first'",
            "set_write_order": "'{name}', 'city, id desc'",
        },
    ),
    *recipes(
        "call",
        Outcome.METADATA,
        {
            "drop_identifier_fields": statement(
                "create table {}new (a bigint not null) {key}",
                "call test.system.set_identifier_fields('{name}new', array('a'))",
                "call test.system.drop_identifier_fields('{name}new', array('a'))",
            ),
            "set_identifier_fields": statement(
                "create table {}new (a bigint not null) {key}", "call test.system.set_identifier_fields('{name}new', array('a'))"
            ),
        },
    ),
    Recipe(
        "call.rollback_to_timestamp",
        lambda p: statement(
            f"call test.system.rollback_to_timestamp('{{name}}', timestamp_millis({p.table.snapshots()[-1].timestamp_ms}))"
        )(p),
        Outcome.METADATA,
    ),
    Recipe("call.add_files", files_added, Outcome.ENCRYPTED),
    *called(
        "call",
        Outcome.ENCRYPTED,
        {
            "rewrite_data_files": "table => '{name}', options => map('rewrite-all', 'true')",
            "optimize": "table => '{name}', options => map('min-input-files', '2', 'expire', 'false', 'leftovers', 'false')",
            "rotate": "table => '{name}', level => 'data'",
            "rewrite_manifests": "'{name}'",
            "rewrite_data_files/z-order": "table => '{name}', sort_order => 'zorder(id, city)', options => map('rewrite-all', 'true')",
        },
    ),
    Recipe("call.remove_orphan_files", orphans, Outcome.REMOVES),
    *called("call", Outcome.REMOVES, {"expire_snapshots": f"'{{name}}', {NEVER}, 1"}),
    *called(
        "call",
        Outcome.READS,
        {
            "ancestors_of": "'{name}'",
            "audit": "'{name}'",
            "create_changelog_view": "'{name}', compute_updates => true",
            "remove_orphan_files/dry run": "table => '{name}', dry_run => true",
            "rewrite_position_delete_files": "'{name}'",  # the table has vectors only
        },
    ),
    *called(
        "call",
        Outcome.REFUSED,
        {
            "cherrypick_snapshot": "'{name}', {first}",
            "convert": "'{name}', 'keyA'",
            "expire_snapshots/arguments": "table => '{name}', stream_results => true",
            "rewrite_data_files/strategy": "table => '{name}', strategy => 'fast'",
            "rewrite_manifests/arguments": "table => '{name}', use_caching => true",
            "rewrite_position_delete_files/arguments": "table => '{name}', where => 'id = 1'",
            "remove_orphan_files/young files": f"'{{name}}', {NEVER}",
        },
    ),
]
RECIPES = [*STATEMENTS, *PROCEDURES]
