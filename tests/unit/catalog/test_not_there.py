"""A name that leads to nothing: the message names what may be meant. The names are the ones that the catalog was given."""

from __future__ import annotations

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from tests.lakes.sqlite import KEYED, TestLake, people


@pytest.fixture
def catalog(tmp_path):
    made = TestLake.with_namespace(tmp_path).catalog()
    made.create_table("db.flights", people().schema, properties=KEYED)
    return made


CALLS = {
    "load": lambda catalog, name: catalog.load_table(name),
    "drop": lambda catalog, name: catalog.drop_table(name),
    "purge": lambda catalog, name: catalog.purge_table(name),
    "rename": lambda catalog, name: catalog.rename_table(name, "db.other"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("db.flihgts", "catalog test has no table db.flihgts; did you mean table db.flights?"),
        ("db.nothing", "catalog test has no table db.nothing"),
        ("dbb.flights", "catalog test has no table dbb.flights; did you mean namespace db?"),
        ("test.db.flights", "catalog test has no table test.db.flights: that catalog is named already, so leave its name out: db.flights"),
        ("flights", "'flights' is not of the form namespace.table, such as 'shop.flights'"),
    ],
)
def test_a_table_that_is_not_there(catalog, call, name, message):
    with pytest.raises(NoSuchTableError) as caught:
        call(catalog, name)
    assert str(caught.value) == message
    assert catalog.list_tables("db") == [("db", "flights")]


def test_a_namespace_that_is_not_there(catalog):
    with pytest.raises(NoSuchNamespaceError, match=r"^catalog test has no namespace dbb; did you mean namespace db\?$"):
        catalog.create_table("dbb.new", people().schema, properties=KEYED)


def test_who_may_not_list_gets_no_hint(catalog, monkeypatch):
    def refused(*_arguments):
        raise PermissionError("may not list")

    monkeypatch.setattr(type(catalog), "list_tables", refused)
    with pytest.raises(NoSuchTableError, match=r"^catalog test has no table db\.flihgts$"):
        catalog.load_table("db.flihgts")


def test_whether_a_table_exists_asks_for_no_other_names(catalog, monkeypatch):
    asked = []
    for method in ("list_tables", "list_namespaces", "namespace_exists"):
        monkeypatch.setattr(catalog, method, lambda *_given, method=method: asked.append(method) or [])
    assert catalog.table_exists("db.flights")
    assert not catalog.table_exists("db.flihgts")
    assert asked == []
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.flihgts")
    assert asked
