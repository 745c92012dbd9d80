from __future__ import annotations

from pyiceberg import types as ice

from icelock.metadata.schema_paths import child_fields, names_to, path_to, schema_paths

LEAF = ice.NestedField(3, "c.d", ice.LongType(), required=False)
INNER = ice.NestedField(2, "b", ice.StructType(LEAF), required=True)
ELEMENT = ice.StructType(ice.NestedField(6, "x", ice.LongType(), required=False))
FIELDS = (
    ice.NestedField(1, "a", ice.StructType(INNER), required=False),
    ice.NestedField(4, "list", ice.ListType(5, ELEMENT, element_required=False), required=False),
)


def test_paths_lead_through_structs_and_end_at_lists():
    found = {path.field.field_id: (path.names, path.positions) for path in schema_paths(FIELDS)}
    assert found == {1: (("a",), (0,)), 2: (("a", "b"), (0, 0)), 3: (("a", "b", "c.d"), (0, 0, 0)), 4: (("list",), (1,))}


def test_a_path_has_the_fields_on_its_way():
    path = path_to(FIELDS, 3)
    assert path is not None
    assert path.fields == (FIELDS[0], INNER, LEAF)
    assert (path_to(FIELDS, 6), names_to(FIELDS, 6)) == (None, ())
    assert names_to(FIELDS, 3) == ("a", "b", "c.d")


def test_children_are_those_of_structs_lists_and_maps():
    kinds = ice.MapType(7, ice.StringType(), 8, ice.LongType())
    assert [field.field_id for kind in (FIELDS[0].field_type, FIELDS[1].field_type, kinds) for field in child_fields(kind)] == [2, 5, 7, 8]
    assert child_fields(ice.LongType()) == ()
