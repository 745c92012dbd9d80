"""What the lane of the second Spark version (``make test43``) is for: each hook into Spark has a test there that fails if it breaks.

What Python does, and what SQL means, is proven on one version. A second one matters where its classes are called: that each method is
there ``test_java.py`` asks javac, that it does what it did ask the tests below. A new hook gets its line here, and the mark on its test.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from icelock.spark.jvm import classes

TESTS = Path(__file__).parents[1]
# A Java class, or what Python reaches for in PySpark: a test of tests/spark, or of the file that is named.
HOOKS = {
    "CachedTables": "test_cached_tables.py::test_queries_and_branches",  # CacheManager.recacheByCondition, which is private
    "Callbacks": "test_callbacks.py::test_targets_go_with_their_frames",
    "CatalogFunctions": "test_functions.py::test_in_queries",
    "ColumnFunctions": "test_native_equality.py::test_values_are_compared_as_the_arrow_engine_compares_them",
    "CountedRows": "test_native_count.py::test_counts_of_all_rows_read_no_file",
    "DefaultSource": "test_write_format.py::test_the_users_process_commits",  # Spark looks for a class of this name first
    "DeletedPositions": "test_delete_statements.py::test_places_of_all_tasks_come_together",
    "DeletedRows": "test_delete_statements.py::test_places_of_all_tasks_come_together",
    "Failure": "test_errors.py::test_each_action_says_which_file_was_changed",
    "FreshScans": "test_push_down.py::test_one_dataframe_serves_many_queries",
    "FunctionFilters": "test_functions.py::test_files_of_other_partitions_are_not_read",
    "KeyOfThread": "test_native_secrets.py::test_no_key_is_left_where_files_were_opened",
    "KeyedParquet": "test_native_schema.py::test_parts_of_columns_are_read_by_id",
    "KeyedReader": "test_native_secrets.py::test_a_damaged_file_is_an_error_and_no_missing_rows",
    "LiveColumn": "test_native_deletes.py::test_vectors_on_every_kind_of_column",
    "LiveRows": "test_native_deletes.py::test_many_splits_of_a_file_with_a_vector",
    "LocalFiles": "test_native_local.py::test_settings_of_the_session_do_not_bring_them_back",
    "MixedFilters": "test_native_filters.py::test_an_or_of_partition_and_file_prunes_its_own_scan_only",
    "NativeScan": "test_native_schema.py::test_defaults_stand_for_older_rows_and_for_no_null",
    "OpenedFile": "test_native_algorithm.py::test_chosen_values_without_a_key",  # Parquet's decryptors, by private fields
    "OwnRows": "test_statements.py::test_an_overwrite_with_rows_of_the_table_itself_loses_no_other_writers",
    "PlannedFiles": "test_native_filters.py::test_dynamic_partition_pruning",
    "Plans": "test_own_rows.py::test_without_commits_of_others_own_rows_are_written",  # PythonTable's private field
    "PositionColumn": "test_native_deletes.py::test_positions_in_a_file_without_deletes",
    "PushedFilters": "test_old_times.py::test_no_file_is_passed_over",
    "PythonProcess": "test_statements.py::test_tables_and_namespaces",  # Spark's exceptions
    "QuietLogs": "test_native_secrets.py::test_a_logger_that_the_configuration_names_is_left_alone",  # log4j by reflection
    "RangeOf": "test_compact.py::test_ranges_with_nulls_and_nan",
    "ReadErrors": "test_native_local.py::test_what_errors_of_storage_become",
    "Replacing": "test_statements.py::test_a_table_is_read_by_its_name_in_every_place_of_a_query",
    "S3Files": "test_s3_files.py::test_rows_of_small_and_large_files",  # FilterFileSystem, which Spark's Hadoop brings
    "SafeFilters": "test_native_filters.py::test_filters_after_a_rename",
    "SizedFile": "test_s3_files.py::test_another_length_is_noticed",
    "SparkCatalog": "test_statements.py::test_create_table_says_what_was_asked_for",  # getSql of a default, by reflection
    "SparkProcedure": "test_procedures.py::test_moving_the_main_branch",
    "SparkTable": "test_statements.py::test_metadata_columns",
    "SparkWrites": "test_statements.py::test_insert_overwrite",
    "SqlTables": "test_sql.py::test_tables_in_every_place_of_a_query",
    "TableCommands": "test_statements.py::test_merge_with_every_clause",
    "TableRelations": "test_statements.py::test_a_self_join_reads_equal_sides_once",
    "StreamCommand": "test_streams_into.py::test_state_and_complete_mode",  # V2CommandExec, and what Janino bridges
    "StreamOffsets": "test_streams_into.py::test_a_checkpoint_that_is_put_back_loses_no_row",  # activeStreamingQueries, and its offsetLog
    "TableStream": "test_streams_out.py::test_state_goes_on_over_batches",  # isStreaming and the stream of a relation of files
    "a batch's thread": "test_streams_into.py::test_foreach_batch_passes_over_no_row_of_a_checkpoint_that_began_anew",  # local properties
    "a data source's read": "test_push_down.py::test_filters_give_the_same_rows_pushed_and_not",
    "a data source's write": "test_write.py::test_append_and_overwrite_make_one_snapshot_each",
    "a plan ahead": "test_ahead.py::test_a_plan_is_made_and_nothing_is_run",
    "its search for data sources": "test_data_source_search.py::test_other_data_sources_are_found_and_without_any_no_process_looks",
    "Arrow batches as PySpark compares them": "test_parts.py::test_arrow_form_is_pysparks",
    "PySpark's calls of functions": "test_streams_caller.py::test_another_user_who_calls_the_function_of_a_stream_runs_nothing_of_it",
    "PySpark's conversion of errors": "test_errors.py::test_other_errors_stay_as_they_are",
    "Spark Connect": "test_connect.py::test_register_read_and_write_over_connect",
    "the README's session": "test_pages.py::test_the_first_page_runs_as_it_stands",
    "what javac sees of Spark": "../test_java.py::test_javac_has_no_warning",
}


@functools.cache
def marked(file: Path) -> set[str]:
    """Return the tests of a file of which the lane runs at least a case, by their decorators or the mark of the file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    words = ("mark.spark43", "mark.newest", "on_second(", "UNPARTITIONED")
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    marks = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"]
    everywhere = any(word in text for text in marks for word in words)
    return {test.name for test in tests if everywhere or any(word in ast.unparse(each) for each in test.decorator_list for word in words)}


def test_each_java_class_has_its_test():
    assert {*classes._RULES, *classes._NATIVE} == {hook for hook in HOOKS if hook[0].isupper() and " " not in hook}


@pytest.mark.parametrize("hook", HOOKS)
def test_the_test_of_a_hook_is_in_the_lane(hook):
    file, _, name = HOOKS[hook].partition("::")
    assert name in marked(TESTS / "spark" / file)
