"""One Spark job (``examples/spark_job.py``), submitted to two masters: it runs on every catalog, where only the configuration differs.

The configuration is that of the catalogs' pages in docs/how-to, with the test servers' addresses and folders in place of theirs. A watch
on the executors' Python processes (``watched_daemon``) says that they reached for no catalog, no key service and no keyring.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

import icelock
from icelock.cli.main import main as command
from tests.helpers.places import ROOT, python_path
from tests.helpers.spark import WARM, spark_environment
from tests.lakes.catalogs import Glue
from tests.pages.blocks import read_page
from tests.servers.metastore import Metastore
from tests.servers.postgres import Postgres
from tests.servers.rest import RestServer
from tests.spark.standalone import SPARK_HOME

pytestmark = [pytest.mark.spark, pytest.mark.hive, pytest.mark.slow]

JOB = ROOT / "examples" / "spark_job.py"
CATALOGS = ["sqlite", "postgres", "hive", "rest", "glue"]
# 0 + 1 + ... + 999 = 499500, and so on: see the script. Value is twice the id, but -1 for the twenty rows of the upsert.
SEEN = {
    "filtered": {"rows": 250, "sum of id": 250 * 750, "sum of value": 250 * 1500},
    "deleted": {"rows": 1000 - 50, "sum of id": 499_500 - 50 * 49, "sum of value": 999_000 - 50 * 98},
    "upserted": {"rows": 950 + 10, "sum of id": 497_050 + 10 * 1004.5, "sum of value": 994_100 - 10 * 2 * 994.5 - 20},
    "written": {"rows": 1000, "sum of id": 499_500, "sum of value": 999_000},
}


def page_configuration(page: str, number: int, fill: Mapping[str, str]) -> str:
    """A catalog's lines in a page of the documentation, each placeholder filled in."""
    blocks = [block.text for block in read_page(ROOT / "docs" / "how-to" / page).blocks if block.language == "yaml"]
    text = blocks[number].removeprefix("catalog:\n  lake:\n")
    for placeholder, value in fill.items():
        assert text.count(f" {placeholder}\n") == 1, f"{page} does not have {placeholder} once"
        text = text.replace(f" {placeholder}\n", f" {value}\n")
    return text


@dataclass(frozen=True, kw_only=True)
class Place:
    """A folder with PyIceberg's configuration of all catalogs, and what else the environment says."""

    folder: Path
    environment: dict[str, str]


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, metastore: Metastore, rest_server: RestServer, glue: Glue
) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("configuration")
    keyring, key_file = folder / "keyring.json", folder / "keyring.key"
    command(["keyring", "init", str(keyring), "lake-key", "--key-file", str(key_file)], standalone_mode=False)
    keys = {"/secure/keyring.json": str(keyring), "/secure/keyring.key": str(key_file)}
    sqlite = {"sqlite:////data/lake.db": f"sqlite:///{folder}/lake.db", "file:///data/warehouse": (folder / "sqlite").as_uri()}
    warehouse = {"s3://bucket/warehouse": (folder / "warehouse").as_uri()}
    pages = {
        "sqlite": ("catalog-sql.md", 0, {**sqlite, **keys}),
        "postgres": ("catalog-sql.md", 1, {"postgresql+psycopg://user:password@host/database": postgres.uri("lakes"), **warehouse, **keys}),
        "hive": ("catalog-hive.md", 0, {"thrift://metastore:9083": metastore.uri, **warehouse, **keys}),
        "rest": ("catalog-rest.md", 0, {"https://catalog.example.com/api": rest_server.uri, **keys}),
        "glue": ("catalog-glue.md", 0, {**warehouse, **keys}),
        "memory": ("catalog-memory.md", 0, {}),
    }
    blocks = [f"  {name}:\n{page_configuration(*filled)}" for name, filled in pages.items()]
    (folder / ".pyiceberg.yaml").write_text("catalog:\n" + "".join(blocks))
    environment = {
        "PYICEBERG_HOME": str(folder),
        "PYICEBERG_CATALOG__GLUE__GLUE__ENDPOINT": glue.client.meta.endpoint_url,
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
    }
    yield Place(folder=folder, environment=environment)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        for name in CATALOGS:
            with icelock.load_catalog(name) as catalog:
                if catalog.table_exists("job.readings"):  # no test of this module may have made it
                    catalog.drop_table("job.readings")
                    catalog.drop_namespace("job")


@dataclass(frozen=True, kw_only=True)
class Run:
    """A job that was submitted: what it printed, and what its executors did."""

    output: dict[str, dict[str, Any]]
    told: str
    watched: list[str]

    def of(self, word: str) -> set[str]:
        """What the watch wrote after a word."""
        return {line.partition(" ")[2] for line in self.watched if line.startswith(f"{word} ")}


@pytest.fixture(scope="module")
def run(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Submit the job. Executors are the same for all catalogs: on a cluster they are in tests/spark/cluster."""
    folder, conf, catalogs = tmp_path_factory.mktemp("job"), {"spark.master": "local[2]"}, [*CATALOGS, "memory"]
    watch = folder / "watch"
    more = {
        "spark.python.daemon.module": "tests.spark.watched_daemon",
        "spark.executorEnv.ICELOCK_WATCH": str(watch),
        "spark.executorEnv.PYTHONPATH": python_path(),
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    settings = [f"--conf={name}={value}" for name, value in {**conf, **more}.items()]
    environment = {
        **os.environ,
        **place.environment,
        **spark_environment(WARM),  # for the driver's planning: executors have their own path above
        "SPARK_HOME": str(SPARK_HOME),
        "TMPDIR": str(folder),
        "ICELOCK_WATCH": str(watch),
    }
    done = subprocess.run(
        [str(SPARK_HOME / "bin" / "spark-submit"), *settings, str(JOB), *(f"--catalog={name}" for name in catalogs)],
        capture_output=True, text=True, check=False, timeout=900, cwd=folder, env=environment,
    )  # fmt: skip
    printed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"catalog"')]
    watched = watch.read_text().splitlines() if watch.exists() else []
    # What Python says on standard error comes out of spark-submit on standard output.
    return Run(output={seen["catalog"]: seen for seen in printed}, told=done.stdout + done.stderr, watched=watched)


def test_the_same_job_is_right_on_each_catalog(run: Run) -> None:
    for catalog in CATALOGS:
        assert catalog in run.output, run.told[-4000:]
        seen = run.output[catalog]
        assert {step: seen[step] for step in SEEN} == SEEN, catalog
        # Three tasks, two partitions each: six files at least. Three snapshots, each with a manifest of its own, and a deletion vector.
        assert seen["files"]["PARE"] >= 6
        assert seen["files"]["AGS1"] >= 7
        stored = {path: path.read_bytes()[:4] for path in Path(urlparse(seen["table"]).path).rglob("*") if path.is_file()}
        encrypted = {path: start for path, start in stored.items() if not path.name.endswith((".metadata.json", ".crc"))}
        assert len(encrypted) >= sum(seen["files"].values()), catalog
        assert set(encrypted.values()) == {b"AGS1", b"PARE"}, catalog


def test_executors_reach_for_no_catalog_and_no_key(run: Run) -> None:
    assert len(run.of("executor")) == 1
    assert len(run.of("worker")) >= 2
    assert run.of("reached") == set()


def test_an_in_memory_catalog_is_refused(run: Run) -> None:
    assert "catalog memory is in the memory of one process, and Spark plans in several" in run.told
    assert "memory" not in run.output


def test_the_watch_sees_what_it_is_for(place: Place, tmp_path: Path) -> None:
    code = """import sys, tests.spark.watched_daemon, icelock
icelock.load_catalog(sys.argv[1]).encryption.kms().wrap_key(bytes(16), 'lake-key')"""
    environment = {
        **os.environ,
        **place.environment,
        "PYTHONPATH": python_path(),
        "ICELOCK_WATCH": str(tmp_path / "watch"),
    }
    subprocess.run([sys.executable, "-c", code, "rest"], check=True, env=environment)
    text = (tmp_path / "watch").read_text()
    for reached in ("import 'icelock.catalog.load'", "import 'icelock.kms", "socket.connect ('127.0.0.1'", "/keyring.json'"):
        assert reached in text
