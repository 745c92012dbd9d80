"""Arguments of the wrong type, swapped ones, and ``register`` called again: one sentence, or what the user meant."""

from __future__ import annotations

import inspect
import logging

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyspark.errors import AnalysisException, PySparkException

import icelock.spark
from icelock.errors import PolicyError
from tests.lakes.sqlite import KEY

pytestmark = pytest.mark.spark
TABLE = "test.db.t"
FUNCTIONS = sorted(name for name in icelock.spark.__all__ if inspect.isfunction(getattr(icelock.spark, name)))


def given(name, spark, rows):
    """Return arguments that fit the parameters that a function needs."""
    fitting = {
        "spark": spark,
        "df": rows,
        "source": rows,
        "table": TABLE,
        "name": TABLE,
        "namespace": "test.db",
        "query": "select 1",
        "delete_filter": "id = 99",
        "on": "id",
        "paths": ["/nowhere"],
        "level": "kek",
        "key_id": "keyA",
    }
    needed = [one.name for one in inspect.signature(getattr(icelock.spark, name)).parameters.values() if one.default is one.empty]
    return {parameter: fitting[parameter] for parameter in needed}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_type_is_one_sentence_that_names_the_argument(sql, spark, name):
    sql(f"create table {TABLE} (id bigint, city string) {KEY}")
    rows = spark.range(1)
    function, fitting = getattr(icelock.spark, name), given(name, spark, rows)
    for parameter in inspect.signature(function).parameters:
        if parameter == "clock":
            continue  # of tests
        for wrong in (object(), b"bytes", 1.5):
            with pytest.raises(PolicyError, match=f"^{parameter} must be .* {type(wrong).__name__}: {name}\\(") as caught:
                function(**{**fitting, parameter: wrong})
            assert "\n" not in str(caught.value)
    first, *others = fitting
    if others:
        with pytest.raises(PolicyError, match=rf"must be .*, and is a \w+: {name}\("):
            function(**{**fitting, first: fitting[others[0]], others[0]: fitting[first]})
    assert sql(f"select count(*) from {TABLE}") == [(0,)]


def test_register_again_keeps_the_catalogs_or_says_which_are_gone(spark, spark_lake, caplog):
    properties = spark_lake.properties()

    def knows(name):
        try:
            return icelock.spark.attach(spark, f"{name}.db") == ()
        except NoSuchNamespaceError:  # of the other catalog, which is empty
            return True

    icelock.spark.register(spark, {"test": properties, "other": properties})
    icelock.spark.register(spark)
    for name in ("test", "other"):
        assert knows(name)
    with caplog.at_level(logging.WARNING, logger="icelock"):
        icelock.spark.register(spark, {"test": properties})
    (told,) = [record.getMessage() for record in caplog.records if "other" in record.getMessage()]
    assert told.startswith("register was called without the catalogs other that it was given before")
    assert knows("test")
    with pytest.raises(PolicyError, match="no catalog 'other'"):
        knows("other")


@pytest.mark.parametrize(
    ("catalogs", "message"),
    [
        (["test"], r"catalogs must be a dict, and is a list: register\(spark, catalogs\)"),
        ({"test": "sqlite:///lake.db"}, r"catalog test is given as a str; it must be a dict: "),
        ({7: {}}, "catalog name 7"),
    ],
)
@pytest.mark.usefixtures("spark_lake")
def test_register_with_what_is_no_catalog(spark, catalogs, message):
    with pytest.raises(PolicyError, match=message):
        icelock.spark.register(spark, catalogs)


@pytest.mark.spark43
@pytest.mark.parametrize("query", ["(id bigint)", "as select 1L as id"])
@pytest.mark.parametrize("part", ["branch_b", "tag_b", "snapshots", "snapshot_id_7"])
def test_no_table_is_made_of_a_part_of_one(sql, spark, part, query):
    sql(f"create table {TABLE} (id bigint) {KEY}")
    using = query.replace("(id bigint)", f"(id bigint) {KEY}").replace("as select", f"{KEY} as select")
    for condition in ("", "if not exists "):
        with pytest.raises(PolicyError, match=f"test.db.t.{part} is a part of the table db.t") as caught:
            sql(f"create table {condition}{TABLE}.{part} {using}")
        assert ("create_branch('db.t', 'b')" in str(caught.value)) == (part == "branch_b")
    sql(f"create table if not exists {TABLE} (id bigint) {KEY}")
    assert spark.catalog.tableExists(f"{TABLE}.snapshots")
    assert [row.tableName for row in spark.sql("show tables in test.db").collect()] == ["t"]


def test_a_table_that_is_not_there_is_one_sentence(sql, spark):
    sql(f"create table test.db.flights (id bigint) {KEY}")
    reads = (
        lambda: spark.read.format("icelock").load("test.db.flihgts"),
        lambda: icelock.spark.read(spark, "test.db.flihgts"),
        lambda: spark.range(1).write.format("icelock").mode("append").save("test.db.flihgts"),
        lambda: icelock.spark.write_to(spark.range(1), "test.db.flihgts").append(),
    )
    for read in reads:
        with pytest.raises(NoSuchTableError) as caught:
            read()
        assert str(caught.value) == "there is no table test.db.flihgts; did you mean table db.flights?"
    with pytest.raises(PySparkException):
        spark.read.format("icelock").load("test.db.flihgts")
    with pytest.raises((AnalysisException, NoSuchTableError), match="flihgts"):
        spark.table("test.db.flihgts")
