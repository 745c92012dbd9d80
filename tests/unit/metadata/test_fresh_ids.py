"""Ids of a table that is created or replaced: by name where the table has the column, new ones else; nothing but ids changes."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from icelock.metadata.fresh_ids import fresh_schema, fresh_spec

GIVEN = Schema(
    NestedField(10, "a", IntegerType(), required=True, doc="first", initial_default=1, write_default=2),
    NestedField(20, "s", StructType(NestedField(30, "b", StringType(), required=False, write_default="x")), required=False),
)


def test_columns_keep_all_but_their_ids():
    assert fresh_schema(GIVEN) == Schema(
        NestedField(1, "a", IntegerType(), required=True, doc="first", initial_default=1, write_default=2),
        NestedField(2, "s", StructType(NestedField(3, "b", StringType(), required=False, write_default="x")), required=False),
    )


def test_a_column_keeps_the_id_of_its_name_and_others_get_ids_that_were_never_used():
    base = Schema(NestedField(4, "a", LongType(), required=False))
    assert [fresh_schema(GIVEN, base, 7).find_field(name).field_id for name in ("a", "s", "s.b")] == [4, 8, 9]


def test_a_partition_field_keeps_the_id_of_its_source_and_transform():
    spec = PartitionSpec(PartitionField(10, 1000, IdentityTransform(), "a"), PartitionField(10, 1001, BucketTransform(4), "a_bucket"))
    earlier = PartitionSpec(PartitionField(1, 1005, BucketTransform(4), "other_name"), spec_id=3)
    found = fresh_spec(spec, GIVEN, fresh_schema(GIVEN), [earlier], 1007)
    assert [(field.source_id, field.field_id, field.name, str(field.transform)) for field in found.fields] == [
        (1, 1008, "a", "identity"),
        (1, 1005, "a_bucket", "bucket[4]"),
    ]
