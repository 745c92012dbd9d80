"""CALL."""

from __future__ import annotations

from typing import Final

from tests.interop.sql_cases.case import DELTA, REFS, SCHEMA, Case, Suite, table
from tests.interop.sql_cases.reasons import (
    EQUALITY_DELETES,
    EXPIRED_FILE,
    NEW_FILES,
    NO_ANCESTORS,
    NO_ARGUMENT,
    NO_CHERRYPICK,
    NO_PARTITIONS,
    NO_PROCEDURE,
    SIZES,
    SPARKS_ERROR,
    TO_COME,
)

# fmt: off

ONE: Final = ("create table {t} (id bigint not null, data string)", "insert into {t} values (1, 'a')")
TWO: Final = (*ONE, "insert into {t} values (2, 'b')")
THREE: Final = (*TWO, "insert into {t} values (3, 'c')")
NOW: Final = "timestamp'2100-01-01 00:00:00'"


def call(name: str, arguments: str) -> str:
    """Return a CALL of one of Iceberg's procedures."""
    return f"call {{cat}}.system.{name}({arguments})"


def wrong(name: str, *arguments: str) -> tuple[str, ...]:
    """Return calls that cannot be understood, as Iceberg's suites have them for each procedure."""
    return tuple(call(name, given) for given in arguments)


ROLLBACK: Final = Suite(
    "TestRollbackToSnapshotProcedure, TestRollbackToTimestampProcedure",
    (
        Case("to a snapshot, by place", "testRollbackToSnapshotUsingPositionalArgs", TWO, call("rollback_to_snapshot", "'{id}', {s1}")),
        Case("to a snapshot, by name", "testRollbackToSnapshotUsingNamedArgs", TWO, call("rollback_to_snapshot", "snapshot_id => {s1}, table => '{id}'")),
        Case("what was cached is made again", "testRollbackToSnapshotRefreshesRelationCache", (*TWO, "create or replace temporary view tmp as select * from {t}", "cache table tmp"), call("rollback_to_snapshot", "'{id}', {s1}"), "select * from tmp"),
        Case("names in back quotes", "testRollbackToSnapshotWithQuotedIdentifiers", TWO, call("rollback_to_snapshot", "'`{only_db}`.`{name}`', {s1}")),
        Case("a snapshot that is not there", "testRollbackToInvalidSnapshot", TWO, call("rollback_to_snapshot", "'{id}', -1")),
        Case("a snapshot that is no ancestor", "testRollbackToInvalidSnapshot, no ancestor", (*TWO, "call {cat}.system.rollback_to_snapshot('{id}', {s1})"), call("rollback_to_snapshot", "'{id}', {s2}")),
        Case("calls that cannot be understood", "testInvalidRollbackToSnapshotCases", (), wrong("rollback_to_snapshot", "'n', table => 't', 1", "'n', 't'", "'t'", "1L", "snapshot_id => 1L", "table => 't'", "'', 1L", "'t', 2.2")),
        Case("a procedure that is not there", "testInvalidRollbackToSnapshotCases, a name", (), "call {cat}.system.nothing('n', 't')", differs=NO_PROCEDURE),
        Case("to a time, by place", "testRollbackToTimestampUsingPositionalArgs", TWO, call("rollback_to_timestamp", "'{id}', timestamp_millis({ms1} + 1)")),
        Case("to a time before the first snapshot", "testRollbackToTimestampBeforeOrEqualToOldestSnapshot", TWO, call("rollback_to_timestamp", "table => '{id}', timestamp => timestamp_millis({ms1})")),
        Case("to a time: calls that cannot be understood", "testInvalidRollbackToTimestampCases", (), wrong("rollback_to_timestamp", "timestamp'2020-01-01'", "'t'", "'t', 2.2")),
    ),
)

SET_CURRENT: Final = Suite(
    "TestSetCurrentSnapshotProcedure",
    (
        Case("by place", "testSetCurrentSnapshotUsingPositionalArgs", TWO, call("set_current_snapshot", "'{id}', {s1}")),
        Case("by name, to one that is no ancestor", "testSetCurrentSnapshotUsingNamedArgs", (*TWO, "call {cat}.system.rollback_to_snapshot('{id}', {s1})"), call("set_current_snapshot", "snapshot_id => {s2}, table => '{id}'")),
        Case("to a ref", "testSetCurrentSnapshotToRef", (*ONE, "+tag t1", "+branch b1", "insert into {t} values (2, 'b')"), (call("set_current_snapshot", "table => '{id}', ref => 't1'"), call("set_current_snapshot", "table => '{id}', ref => 'nothing'"), call("set_current_snapshot", "table => '{id}', snapshot_id => 1, ref => 't1'"), call("set_current_snapshot", "table => '{id}'"))),
        Case("to what is not there", "testSetCurrentSnapshotToInvalidSnapshot", TWO, call("set_current_snapshot", "'{id}', -1")),
        Case("calls that cannot be understood", "testInvalidRollbackToSnapshotCases", (), wrong("set_current_snapshot", "'n', table => 't', 1L", "snapshot_id => 1L", "'t', 2.2", "'', 1L")),
    ),
)

FAST_FORWARD: Final = Suite(
    "TestFastForwardBranchProcedure",
    (
        Case("main, by place", "testFastForwardBranchUsingPositionalArgs", (*ONE, "+branch b1", "insert into {t}.branch_b1 values (2, 'b')"), call("fast_forward", "'{id}', 'main', 'b1'"), ("select * from {t}", REFS)),
        Case("main, by name", "testFastForwardBranchUsingNamedArgs", (*ONE, "+branch b1", "insert into {t}.branch_b1 values (2, 'b')"), call("fast_forward", "table => '{id}', branch => 'main', to => 'b1'"), ("select * from {t}", REFS)),
        Case("to what is no descendant", "testFastForwardWhenTargetIsNotAncestorFails", (*ONE, "+branch b1", "insert into {t} values (2, 'b')", "insert into {t}.branch_b1 values (3, 'c')"), call("fast_forward", "'{id}', 'main', 'b1'"), ("select * from {t}", REFS)),
        Case("to what is not there", "testFastForwardNonExistingToRefFails", ONE, call("fast_forward", "'{id}', 'main', 'nothing'"), REFS),
        Case("another branch", "testFastForwardNonMain", (*ONE, "+branch b1", "insert into {t} values (2, 'b')", "+branch b2"), call("fast_forward", "'{id}', 'b1', 'b2'"), REFS),
        Case("a branch that is not there is made", "testFastForwardNonExistingFromMainCreatesBranch", ONE, call("fast_forward", "'{id}', 'b9', 'main'"), REFS),
        Case("calls that cannot be understood", "testInvalidFastForwardBranchCases", (), wrong("fast_forward", "'test_table', branch => 'main', to => 'b', 1", "'', 'main', 'b'", "'t'")),
    ),
)

ANCESTORS: Final = Suite(
    "TestAncestorsOfProcedure",
    (
        Case("of the current snapshot", "testAncestorOfUsingEmptyArgs", TWO, call("ancestors_of", "'{id}'"), ()),
        Case("of a snapshot", "testAncestorOfUsingSnapshotId", TWO, call("ancestors_of", "'{id}', {s1}"), ()),
        Case("after a rollback", "testAncestorOfWithRollBack", (*THREE, "call {cat}.system.rollback_to_snapshot('{id}', {s2})", "insert into {t} values (4, 'd')"), (call("ancestors_of", "'{id}', {s4}"), call("ancestors_of", "'{id}', {s3}")), ()),
        Case("by name", "testAncestorOfUsingNamedArgs", ONE, call("ancestors_of", "snapshot_id => {s1}, table => '{id}'"), ()),
        Case("of a table without snapshots", "testAncestorOfUsingEmptyArgs, an empty table", ("create table {t} (id bigint)",), call("ancestors_of", "'{id}'"), (), differs=NO_ANCESTORS),
        Case("calls that cannot be understood", "testInvalidAncestorOfCases", TWO, wrong("ancestors_of", "", "''", "'{id}', '1.1'", "'{id}', 1"), ()),
    ),
)

CHERRYPICK: Final = Suite(
    "TestCherrypickSnapshotProcedure",
    (
        Case("a snapshot of a branch", "testCherrypickSnapshotUsingPositionalArgs", (*ONE, "+branch b1", "insert into {t}.branch_b1 values (2, 'b')", "insert into {t} values (3, 'c')"), call("cherrypick_snapshot", "'{id}', {s2}"), differs=NO_CHERRYPICK),
        Case("a snapshot that is not there", "testCherrypickInvalidSnapshot", ONE, call("cherrypick_snapshot", "'{id}', -1")),
        Case("calls that cannot be understood", "testInvalidCherrypickSnapshotCases", (), wrong("cherrypick_snapshot", "'n', table => 't', 1L", "'t'", "snapshot_id => 1L", "'', 1L", "'t', 2.2")),
    ),
)

EXPIRE: Final = Suite(
    "TestExpireSnapshotsProcedure",
    (
        Case("an empty table", "testExpireSnapshotsInEmptyTable", ("create table {t} (id bigint)",), call("expire_snapshots", "'{id}'"), differs=EQUALITY_DELETES),
        Case("by place", "testExpireSnapshotsUsingPositionalArgs", TWO, call("expire_snapshots", f"'{{id}}', {NOW}"), ("select * from {t}", "select count(*) from {t}.snapshots"), differs=EQUALITY_DELETES),
        Case("files that nobody needs, keeping some snapshots", "testExpireSnapshotsUsingPositionalArgs, after an overwrite", (*TWO, "insert overwrite {t} values (3, 'c')", "insert into {t} values (4, 'd')"), call("expire_snapshots", f"'{{id}}', {NOW}, 2"), ("select * from {t}", "select count(*) from {t}.snapshots"), differs=EQUALITY_DELETES),
        Case("by name", "testExpireSnapshotUsingNamedArgs", TWO, call("expire_snapshots", f"older_than => {NOW}, table => '{{id}}'"), ("select * from {t}", "select count(*) from {t}.snapshots"), differs=EQUALITY_DELETES),
        Case("where files may not be deleted", "testExpireSnapshotsGCDisabled", (*TWO, "alter table {t} set tblproperties ('gc.enabled' = 'false')"), call("expire_snapshots", "'{id}'"), "select count(*) from {t}.snapshots"),
        Case("calls that cannot be understood", "testInvalidExpireSnapshotsCases", (), (*wrong("expire_snapshots", "'n', table => 't'", "", "'n', 2.2", "''"), "call {cat}.custom.expire_snapshots('n', 't')"), differs=NO_PROCEDURE),
        Case("one by its id", "testExpireSnapshotsWithSnapshotId", TWO, call("expire_snapshots", "table => '{id}', snapshot_ids => array({s1})"), ("select * from {t}", "select count(*) from {t}.snapshots"), differs=EQUALITY_DELETES),
        Case("the current one by its id", "testExpireSnapshotShouldFailForCurrentSnapshot", TWO, call("expire_snapshots", "table => '{id}', snapshot_ids => array({s1}, {s2})"), "select count(*) from {t}.snapshots"),
        Case("with comments", "testExpireSnapshotsProcedureWorksWithSqlComments", TWO, "/* it expires */\n-- really\n" + call("expire_snapshots", f"older_than => {NOW}, table => '{{id}}'"), "select count(*) from {t}.snapshots", differs=EQUALITY_DELETES),
        Case("deletes that nobody needs", "testExpireDeleteFiles", (*table("id bigint, data string", "(1, 'a')", "(2, 'b')", "(3, 'c')"), "delete from {t} where id = 1", "delete from {t} where id > 1"), call("expire_snapshots", f"older_than => {NOW}, table => '{{id}}'"), ("select * from {t}", "select count(*) from {t}.snapshots"), modes=(DELTA,), differs=EXPIRED_FILE),
        Case("how many files are deleted at once", "testConcurrentExpireSnapshotsWithInvalidInput", TWO, (call("expire_snapshots", "table => '{id}', max_concurrent_deletes => 0"), call("expire_snapshots", f"table => '{{id}}', older_than => {NOW}, max_concurrent_deletes => 2")), "select count(*) from {t}.snapshots", differs=NO_ARGUMENT),
        Case("schemas that nobody needs", "testCleanExpiredMetadata", (*ONE, "alter table {t} add column extra int", "insert into {t} values (2, 'b', 1)"), call("expire_snapshots", f"older_than => {NOW}, clean_expired_metadata => true, table => '{{id}}'"), (SCHEMA, "select count(*) from {t}.snapshots"), differs=NO_ARGUMENT),
        Case("tagged snapshots stay", "testExpireSnapshotUsingNamedArgs, refs", (*ONE, "+tag keep", "insert into {t} values (2, 'b')", "insert into {t} values (3, 'c')"), call("expire_snapshots", f"older_than => {NOW}, table => '{{id}}'"), ("select * from {t}.tag_keep", "select count(*) from {t}.snapshots"), differs=EQUALITY_DELETES),
        Case("a table of another catalog", "testResolvingTableInAnotherCatalog", (), call("expire_snapshots", "'other.{id}'"), ()),
    ),
)

ORPHANS: Final = Suite(
    "TestRemoveOrphanFilesProcedure",
    (
        Case("an empty table", "testRemoveOrphanFilesInEmptyTable", ("create table {t} (id bigint)",), call("remove_orphan_files", "'{id}'")),
        Case("files of nobody: first shown, then removed", "testRemoveOrphanFilesDryRun", (*TWO, "+orphan data/a.parquet"), (call("remove_orphan_files", "table => '{id}', older_than => timestamp'2020-01-02 00:00:00', dry_run => true"), call("remove_orphan_files", "table => '{id}', older_than => timestamp'2020-01-02 00:00:00'"), call("remove_orphan_files", "table => '{id}', older_than => timestamp'2020-01-02 00:00:00'"))),
        Case("where files may not be deleted", "testRemoveOrphanFilesGCDisabled", (*TWO, "alter table {t} set tblproperties ('gc.enabled' = 'false')"), call("remove_orphan_files", "'{id}'")),
        Case("files of deletes stay", "testRemoveOrphanFilesWithDeleteFiles", (*table("id bigint, data string", "(1, 'a')", "(2, 'b')"), "delete from {t} where id = 1"), call("remove_orphan_files", "table => '{id}', older_than => timestamp'2020-01-02 00:00:00'"), modes=(DELTA,)),
        Case("times too near", "testRemoveOrphanFilesInDataFolder, an error", TWO, call("remove_orphan_files", f"table => '{{id}}', older_than => {NOW}")),
        Case("calls that cannot be understood", "testInvalidRemoveOrphanFilesCases", (), (*wrong("remove_orphan_files", "'n', table => 't'", "", "'n', 2.2", "''"), "call {cat}.custom.remove_orphan_files('n', 't')"), differs=NO_PROCEDURE),
        Case("how many files are deleted at once", "testConcurrentRemoveOrphanFilesWithInvalidInput", TWO, call("remove_orphan_files", "table => '{id}', max_concurrent_deletes => 0")),
    ),
)

_REWRITES: Final = {"rewrite_data_files": SIZES, "compute_table_stats": TO_COME}
REWRITES: Final = Suite(
    "TestRewriteDataFilesProcedure, TestRewriteManifestsProcedure, and others",
    tuple(
        Case(title, of, TWO, call(name, arguments), differs=_REWRITES.get(name))
        for title, of, name, arguments in (
            ("rewrite_data_files", "testRewriteDataFilesOnPartitionTable", "rewrite_data_files", "table => '{id}', options => map('min-input-files', '2')"),
            ("rewrite_manifests", "testRewriteManifestsInEmptyTable", "rewrite_manifests", "'{id}'"),
            ("rewrite_position_delete_files", "TestRewritePositionDeleteFilesProcedure", "rewrite_position_delete_files", "'{id}'"),
            ("compute_table_stats", "TestComputeTableStatsProcedure", "compute_table_stats", "'{id}'"),
            ("create_changelog_view", "TestCreateChangelogViewProcedure", "create_changelog_view", "'{id}'"),
        )
    ),
)

PLAIN_FOLDER: Final = "insert overwrite directory '{place}/plain' using parquet select * from values (7L, 'g'), (8L, 'h') as v(id, data)"

ADD_FILES: Final = Suite(
    "TestAddFilesProcedure",
    (
        Case("files of a folder", "addDataUnpartitioned", (*ONE, PLAIN_FOLDER), call("add_files", "'{id}', '`parquet`.`{place}/plain`'"), differs=NO_PARTITIONS),
        Case("the same files twice", "duplicateDataUnpartitioned", (*ONE, PLAIN_FOLDER, call("add_files", "'{id}', '`parquet`.`{place}/plain`'")), call("add_files", "'{id}', '`parquet`.`{place}/plain`'"), differs=NEW_FILES),
        Case("files without a column", "addDataUnpartitionedMissingCol", ("create table {t} (id bigint, data string, more int)", PLAIN_FOLDER), call("add_files", "table => '{id}', source_table => '`parquet`.`{place}/plain`'"), differs=NO_PARTITIONS),
        Case("a folder that is not there", "invalidDataImport", ONE, call("add_files", "'{id}', '`parquet`.`{place}/nothing`'"), differs=SPARKS_ERROR),
    ),
)

SUITES: Final = (ROLLBACK, SET_CURRENT, FAST_FORWARD, ANCESTORS, CHERRYPICK, EXPIRE, ORPHANS, ADD_FILES, REWRITES)
