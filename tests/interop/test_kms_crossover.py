"""Tables cross over with the key services that Java has too: either engine makes a table, both write it, both read it.

``keystore``: a PKCS#12 file of keytool's. ``aws``: Iceberg's own ``AwsKeyManagementClient`` against local-kms. ``azure``: Iceberg's own
``AzureKeyManagementClient`` against the double. Each is one more Java catalog in the shared session, on the same metastore.

Not here: Google, whose Java client cannot be led to a double.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError, Py4JJavaError

import icelock
from tests.helpers.keystores import PASSWORD, SECRET, add_key, keytool
from tests.interop.matrix import Engines
from tests.interop.session import DATABASE
from tests.servers.azure_double import HOST, AzureDouble, vault_proxy
from tests.servers.local_kms import local_kms, rotate

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]

CREDENTIALS = {"aws.accessKeyId": "AKIATEST", "aws.secretAccessKey": "secret"}


def rows(start: int) -> pa.Table:
    return pa.table({"id": pa.array([start, start + 1], pa.int64()), "name": [f"n{start}", None]})


@dataclass(frozen=True)
class Crossing:
    """One key service, as Java's catalog ``name`` and as ours."""

    engines: Engines
    name: str
    key_id: str
    catalog: Any
    rotate: Callable[[], Any] | None = None

    def java_creates(self, table: str) -> None:
        properties = f"'format-version' = '3', 'encryption.key-id' = '{self.key_id}'"
        self.engines.java.spark.sql(
            f"CREATE TABLE {self.name}.{DATABASE}.{table} (id bigint, name string) USING iceberg TBLPROPERTIES ({properties})"
        )

    def java_appends(self, table: str, start: int) -> None:
        self.engines.java.spark.sql(f"INSERT INTO {self.name}.{DATABASE}.{table} VALUES ({start}, 'n{start}'), ({start + 1}, NULL)")

    def we_create(self, table: str) -> None:
        self.catalog.create_table(f"{DATABASE}.{table}", schema=rows(0).schema, properties={"encryption.key-id": self.key_id})

    def we_append(self, table: str, start: int) -> None:
        self.catalog.load_table(f"{DATABASE}.{table}").append(rows(start))

    def both_read(self, table: str, *starts: int) -> None:
        expected = sorted(row for start in starts for row in ((start, f"n{start}"), (start + 1, None)))
        java = self.engines.java.spark.sql(f"SELECT id, name FROM {self.name}.{DATABASE}.{table}").collect()
        ours = self.catalog.load_table(f"{DATABASE}.{table}").scan().to_arrow()
        assert sorted(tuple(row) for row in java) == expected
        assert sorted(zip(*ours.to_pydict().values(), strict=True)) == expected


def _crossing(engines: Engines, name: str, key_id: str, kms: dict[str, str], java: dict[str, str], rotate=None) -> Crossing:
    spark = engines.java.spark
    session = engines.ours.catalog.properties
    settings = {"type": "hive", "uri": session["uri"], "warehouse": session["warehouse"], "cache-enabled": "false", **java}
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for setting, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{setting}", value)
    catalog = icelock.load_catalog(name, type="hive", uri=session["uri"], warehouse=session["warehouse"], **kms)
    return Crossing(engines, name, key_id, catalog, rotate)


@contextmanager
def system_properties(engines: Engines, values: dict[str, str]) -> Iterator[None]:
    """Set what the JVM reads when a client is made; it may have ended with the last test."""
    for name, value in values.items():
        engines.java.jvm.java.lang.System.setProperty(name, value)
    yield
    with suppress(Py4JError, OSError):
        for name in values:
            engines.java.jvm.java.lang.System.clearProperty(name)


@pytest.fixture(scope="module")
def keystore(engines, tmp_path_factory) -> Iterator[Crossing]:
    store = tmp_path_factory.mktemp("keystore") / "lake.p12"
    add_key(store, "LakeKey")
    place = {"kms.client.keystore.path": str(store)}
    with system_properties(engines, {"KEYSTORE_PASSWORD": PASSWORD}), pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEYSTORE_PASSWORD", PASSWORD)
        java = {"encryption.kms-impl": "KeystoreKms", **place}
        yield _crossing(engines, "crossks", "LakeKey", {"encryption.kms-type": "keystore", **place}, java)


@pytest.fixture(scope="module")
def aws(engines, tmp_path_factory) -> Iterator[Crossing]:
    folder = tmp_path_factory.mktemp("local-kms")
    with system_properties(engines, CREDENTIALS), local_kms(folder) as port, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        url = f"http://127.0.0.1:{port}"
        admin = boto3.client("kms", endpoint_url=url, region_name="us-east-1")
        arn = admin.create_key()["KeyMetadata"]["Arn"]
        admin.create_alias(AliasName="alias/lake", TargetKeyId=arn)
        kms = {"encryption.kms-type": "aws", "kms.endpoint": url, "client.region": "us-east-1"}
        yield _crossing(engines, "crossaws", "alias/lake", kms, kms, lambda: rotate(port, arn))


@pytest.fixture(scope="module")
def azure(engines, tmp_path_factory) -> Iterator[Crossing]:
    folder = tmp_path_factory.mktemp("azure")
    with AzureDouble(folder).serving() as double, vault_proxy(double) as proxy:
        double.add_version("lake")
        trust = folder / "trust.p12"
        keytool("-importcert", "-noprompt", "-alias", "double", "-file", double.ca, "-keystore", trust, *SECRET)
        trusting = {"javax.net.ssl.trustStore": str(trust), "javax.net.ssl.trustStorePassword": PASSWORD}
        settings = {**trusting, "https.proxyHost": "127.0.0.1", "https.proxyPort": str(proxy)}
        java = {
            "encryption.kms-type": "azure",
            "azure.keyvault.url": f"https://{HOST}",
            "adls.token-credential-provider": "AzureTokens",
        }
        ours = {
            "encryption.kms-impl": "tests.servers.azure_double.DoubleAzureKms",
            "kms.double.url": double.url,
            "kms.double.ca": str(double.ca),
        }
        with system_properties(engines, settings):
            yield _crossing(engines, "crossazure", "lake", {**ours, "kms.double.token": "writer"}, java, lambda: double.add_version("lake"))


@pytest.fixture(params=["keystore", "aws", "azure"])
def crossing(request) -> Crossing:
    return request.getfixturevalue(request.param)


@pytest.mark.turns(3)
def test_java_makes_a_table_and_both_write_and_read_it(crossing, new_table):
    table = new_table("kms_java_made")
    crossing.java_creates(table)
    crossing.java_appends(table, 1)
    crossing.both_read(table, 1)
    crossing.we_append(table, 10)
    crossing.java_appends(table, 20)
    crossing.both_read(table, 1, 10, 20)


def test_we_make_a_table_and_both_write_and_read_it(crossing, new_table):
    table = new_table("kms_ours_made")
    crossing.we_create(table)
    crossing.we_append(table, 1)
    crossing.both_read(table, 1)
    crossing.java_appends(table, 10)
    crossing.we_append(table, 20)
    crossing.both_read(table, 1, 10, 20)


def test_tables_of_both_outlive_a_rotation(aws, new_table):
    ours, javas = new_table("kms_rotated"), new_table("kms_rotated")
    aws.we_create(ours)
    aws.we_append(ours, 1)
    aws.java_creates(javas)
    aws.java_appends(javas, 1)
    aws.rotate()
    for table in (ours, javas):
        aws.both_read(table, 1)
        aws.java_appends(table, 10)
        aws.we_append(table, 20)
        aws.both_read(table, 1, 10, 20)


def test_after_a_rotation_in_azure_java_needs_the_version_in_the_key_id(azure, new_table):
    """What docs/how-to/kms-azure.md advises: the blob does not name its version, and only we look for it."""
    bare, named = new_table("kms_bare"), new_table("kms_named")
    first = replace(azure, key_id=f"lake/{1:032x}")
    azure.we_create(bare)
    azure.we_append(bare, 1)
    first.java_creates(named)
    first.java_appends(named, 1)
    azure.rotate()
    first.both_read(named, 1)
    first.we_append(named, 10)
    first.java_appends(named, 20)
    first.both_read(named, 1, 10, 20)
    assert azure.catalog.load_table(f"{DATABASE}.{bare}").scan().to_arrow().num_rows == 2
    with pytest.raises(Py4JJavaError, match="parameter is incorrect"):
        azure.both_read(bare, 1)
