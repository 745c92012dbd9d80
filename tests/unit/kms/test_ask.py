"""A KMS class of the user's that fails: an error of icelock's with the class's name, wherever a key is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import icelock
from icelock.errors import IcelockError, KeyUnavailableError, KmsClientError, KmsError, PolicyError
from tests.lakes.sqlite import KEYED, TestLake, people

USERS = "tests.unit.kms.user_kms"
ERRORS = ["ConnectionError", "TimeoutError", "KeyError", "Own"]
ANSWERS = ["None", "text", "empty", "number", "list"]


def catalog(lake: TestLake, fault: str = "", kms: str = "Failing", setting: str = "py-kms-impl") -> Any:
    keep = {name: value for name, value in lake.properties().items() if not name.startswith(("encryption.", "kms."))}
    own = {setting: f"{USERS}.{kms}", "my-kms.keys.keyA": "00" * 16, "my-kms.fault": fault}
    return icelock.load_catalog("test", **keep, **own, **{"commit.retry.num-retries": "0"})


def create(cat: Any) -> Any:
    return cat.create_table("db.new", people().schema, properties=KEYED)


def create_with_rows(cat: Any) -> None:
    with cat.create_table_transaction("db.new", people().schema, properties=KEYED) as tx:
        tx.append(people())


def first_append(cat: Any) -> None:
    cat.load_table("db.empty").append(people())


def after_a_rotation(cat: Any) -> None:
    clock = cat.encryption.clock
    cat.encryption.clock = lambda: clock() + 731 * 24 * 60 * 60 * 1_000
    cat.load_table("db.t").append(people())


def append(cat: Any) -> None:
    cat.load_table("db.t").append(people())


def read(cat: Any) -> None:
    cat.load_table("db.t").scan().to_arrow()


def again(cat: Any) -> None:
    made = cat.load_table("db.t")
    cat.register_table("db.again", made.metadata_location)


def check(lake: TestLake, use: Callable[[Any], Any], fault: str, kind: type[Exception] = KeyUnavailableError, kms: str = "Failing") -> str:
    plain = catalog(lake)
    if not plain.table_exists("db.t"):
        plain.create_table("db.t", people().schema, properties=KEYED).append(people())
    before, tables = lake.files(), plain.list_tables("db")
    with pytest.raises(kind) as caught:
        use(catalog(lake, fault, kms))
    assert isinstance(caught.value, IcelockError)
    assert not isinstance(caught.value, KmsError), "none of the five kinds is known"
    text = str(caught.value)
    assert kms in text
    assert "s3cr3t" not in text
    assert (lake.files(), plain.list_tables("db")) == (before, tables), "nothing was written"
    return text


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_of_its_own_in_a_call(lake: TestLake, error: str) -> None:
    for use in (create, create_with_rows):
        assert f"failed to wrap with master key 'keyA': {error}" in check(lake, use, f"wrap {error}")
    for use in (append, read, again):
        assert f"failed to unwrap with master key 'keyA': {error}" in check(lake, use, f"unwrap {error}")


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_is_no_key(lake: TestLake, answer: str) -> None:
    assert "did not wrap with master key 'keyA': expected bytes" in check(lake, create, f"wrap {answer}")
    for use in (append, read):
        assert "did not unwrap with master key 'keyA': expected bytes" in check(lake, use, f"unwrap {answer}")


def test_a_key_of_no_length_and_one_that_is_not_wrapped(lake: TestLake) -> None:
    assert "expected 16, 24 or 32 bytes from the KMS, got 5" in check(lake, read, "unwrap short")
    assert "returned the key itself" in check(lake, create, "wrap itself")


@pytest.mark.parametrize("setting", ["py-kms-impl", "encryption.kms-impl"])
@pytest.mark.parametrize("error", ERRORS)
def test_a_constructor_that_fails(lake: TestLake, error: str, setting: str) -> None:
    """The setting is wrong, and no key can be had: it is both errors."""
    catalog(lake).create_table("db.t", people().schema, properties=KEYED).append(people())
    before = lake.files()
    for use in (create, create_with_rows, append, read, again):
        with pytest.raises(KmsClientError, match=rf"{setting}: {USERS}\.Failing\(properties\) failed with {error}") as caught:
            use(catalog(lake, f"init {error}", setting=setting))
        assert isinstance(caught.value, KeyUnavailableError)
        assert isinstance(caught.value, PolicyError)
        assert "s3cr3t" not in str(caught.value)
    assert lake.files() == before


@pytest.mark.parametrize("use", [first_append, create_with_rows, after_a_rotation])
@pytest.mark.parametrize("fault", ["unwrap other", "unwrap short"])
def test_a_class_that_loses_a_new_key_is_found_out_before_a_row_is_written(lake: TestLake, use: Callable[[Any], Any], fault: str) -> None:
    catalog(lake).create_table("db.empty", people().schema, properties=KEYED)
    text = check(lake, use, fault)
    assert "keyA" in text or "expected 16, 24 or 32 bytes" in text
    if fault == "unwrap other":
        assert "wrapped a new key with master key 'keyA' and unwrapped it to another" in text


def test_a_class_that_makes_something_else(lake: TestLake) -> None:
    with pytest.raises(KmsClientError, match="made a NoneType without wrap_key or unwrap_key"):
        create(catalog(lake, kms="MakesNothing"))


@pytest.mark.parametrize("call", ["init", "wrap"])
def test_an_interrupt_is_none_of_its_errors(lake: TestLake, call: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        create(catalog(lake, f"{call} KeyboardInterrupt"))
