"""One lake for each kind of catalog, all with the same face, for the contract (``contract``).

``space`` is a namespace that is there, ``point_at`` changes which metadata file the catalog names behind every client's back, and
``lost_answer`` lets a catalog make the next commit and lose the answer.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import psycopg
from botocore.exceptions import ConnectionClosedError
from pyiceberg.catalog.hive import _HiveClient
from requests import ConnectionError as RequestsConnectionError

from icelock.catalog.hive.parameters import row_parameters
from icelock.table.encryption import TableEncryption
from tests.helpers.hive_faults import Faults
from tests.lakes.closing import ClosingLake
from tests.lakes.sqlite import KEYED, people
from tests.servers.metastore import Metastore
from tests.servers.postgres import Postgres
from tests.servers.rest import RestServer

POINT = "UPDATE iceberg_tables SET metadata_location = {0} WHERE table_namespace = {0} AND table_name = {0}"
QUICK = {"commit.status-check.num-retries": "2", "commit.status-check.min-wait-ms": "20"}


class CatalogLake(ClosingLake):
    """The SQL catalog on sqlite; others say what differs."""

    __test__ = False
    shared = False  # whether there is one catalog object only
    checks_namespaces = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.space = f"db_{uuid.uuid4().hex[:12]}"
        self.begin()
        self.calls.take()

    def begin(self) -> None:
        self.catalog().create_namespace(self.space)

    def name(self, table: str = "t") -> str:
        return f"{self.space}.{table}"

    def make(self, table: str = "t", *, rows: int = 0, **properties: str) -> Any:
        made = self.catalog().create_table(self.name(table), people().schema, properties={**KEYED, **QUICK, **properties})
        if rows:
            made.append(people(0, rows))
        return made

    def load(self, table: str = "t", **more: str) -> Any:
        return self.catalog(**more).load_table(self.name(table))

    def files(self) -> dict[str, bytes]:
        """Every file but the check sums that Hadoop's local file system writes beside its own."""
        return {path: data for path, data in super().files().items() if not path.endswith(".crc")}

    def point_at(self, location: str, table: str = "t") -> None:
        with contextlib.closing(sqlite3.connect(self.folder / "catalog.db")) as connection, connection:
            connection.execute(POINT.format("?"), (location, self.space, table))

    @contextlib.contextmanager
    def lost_answer(self, catalog: Any) -> Iterator[None]:
        catalog._store.facts.ensure()
        dialect, commit = catalog.engine.dialect, catalog.engine.dialect.do_commit

        def once(connection: Any) -> None:
            dialect.do_commit = commit
            commit(connection)
            msg = "the connection was lost"
            raise OSError(msg)

        dialect.do_commit = once
        try:
            yield
        finally:
            dialect.do_commit = commit


class MemoryLake(CatalogLake):
    """The in-memory catalog: one object has it."""

    shared = True

    def properties(self, **more: str) -> dict[str, str]:
        return {"type": "in-memory", "warehouse": str(self.warehouse), **self.calls.properties(), **more}

    def catalog(self, **more: str) -> Any:
        if not hasattr(self, "_one"):
            self._one = super().catalog(**more)
        return self._one

    def without_kms(self) -> Any:
        catalog = self.catalog()
        catalog.encryption = TableEncryption.from_properties({}, owner="catalog test")
        return catalog


class RestLake(CatalogLake):
    """Iceberg's own REST server, which makes tables in namespaces that are not there."""

    checks_namespaces = False

    def __init__(self, folder: Path, server: RestServer) -> None:
        self.server = server
        super().__init__(folder)

    def begin(self) -> None:
        # The server chooses where tables are.
        self.warehouse = self.server.warehouse / self.space
        self.catalog().create_namespace(self.space)

    def properties(self, **more: str) -> dict[str, str]:
        return {"type": "rest", "uri": self.server.uri, **self.calls.properties(), **more}

    def point_at(self, location: str, table: str = "t") -> None:
        with contextlib.closing(sqlite3.connect(self.server.database, timeout=30)) as connection, connection:
            connection.execute(POINT.format("?"), (location, self.space, table))

    @contextlib.contextmanager
    def lost_answer(self, catalog: Any) -> Iterator[None]:
        session, post = catalog._session, catalog._session.post

        def once(*args: Any, **kwargs: Any) -> Any:
            session.post = post
            assert post(*args, **kwargs).ok
            msg = "the connection was lost"
            raise RequestsConnectionError(msg)

        session.post = once
        try:
            yield
        finally:
            session.post = post


class PostgresLake(CatalogLake):
    """The SQL catalog on PostgreSQL, in the database ``lakes``."""

    def __init__(self, folder: Path, server: Postgres) -> None:
        self.server = server
        super().__init__(folder)

    def properties(self, **more: str) -> dict[str, str]:
        return {**super().properties(), "uri": self.server.uri("lakes"), **more}

    def point_at(self, location: str, table: str = "t") -> None:
        with psycopg.connect(self.server.uri("lakes").replace("+psycopg", "")) as connection:
            connection.execute(POINT.format("%s"), (location, self.space, table))


class Glue:
    """One boto3 client of moto for all, since making one takes long; it refuses stale versions, as AWS does and moto does not."""

    def __init__(self, endpoint: str) -> None:
        session = boto3.Session(aws_access_key_id="any", aws_secret_access_key="any", region_name="eu-west-1")
        self.client: Any = session.client("glue", endpoint_url=endpoint)
        self._update = self.client.update_table
        self._one_at_a_time = threading.Lock()
        self.client.update_table = self._compare_and_swap

    def _compare_and_swap(self, **kwargs: Any) -> Any:
        with self._one_at_a_time:
            now = self.client.get_table(DatabaseName=kwargs["DatabaseName"], Name=kwargs["TableInput"]["Name"])["Table"]["VersionId"]
            if kwargs.get("VersionId", now) != now:
                answer = {"Error": {"Code": "ConcurrentModificationException"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
                raise self.client.exceptions.ConcurrentModificationException(answer, "UpdateTable")
            return self._update(**kwargs)


class GlueLake(CatalogLake):
    """Glue, on moto."""

    def __init__(self, folder: Path, glue: Glue) -> None:
        self.glue = glue.client
        super().__init__(folder)

    def begin(self) -> None:
        self.catalog().create_namespace(self.space, {"location": f"file://{self.warehouse}/{self.space}"})

    def properties(self, **more: str) -> dict[str, str]:
        return {"type": "glue", "client": self.glue, **self.calls.properties(), **more}

    def point_at(self, location: str, table: str = "t") -> None:
        self.alter(table, metadata_location=location)

    def parameters(self, table: str = "t") -> dict[str, str]:
        return dict(self.glue.get_table(DatabaseName=self.space, Name=table)["Table"]["Parameters"])

    def alter(self, table: str = "t", **parameters: str | None) -> None:
        """Change parameters as another client does; None removes one."""
        changed = {name: value for name, value in {**self.parameters(table), **parameters}.items() if value is not None}
        self.glue.update_table(DatabaseName=self.space, TableInput={"Name": table, "Parameters": changed})

    @contextlib.contextmanager
    def lost_answer(self, catalog: Any) -> Iterator[None]:
        glue = catalog.glue
        calls = {name: getattr(glue, name) for name in ("create_table", "update_table")}

        def losing(name: str) -> Any:
            def once(**kwargs: Any) -> Any:
                setattr(glue, name, calls[name])
                calls[name](**kwargs)
                raise ConnectionClosedError(endpoint_url="moto")

            return once

        for name in calls:
            setattr(glue, name, losing(name))
        try:
            yield
        finally:
            for name, call in calls.items():
                setattr(glue, name, call)


class HiveLake(CatalogLake):
    """A Hive metastore."""

    def __init__(self, folder: Path, server: Metastore) -> None:
        self.server = server
        super().__init__(folder)

    def begin(self) -> None:
        self.catalog().create_namespace(self.space, {"location": f"file://{self.warehouse}/{self.space}.db"})

    def properties(self, **more: str) -> dict[str, str]:
        return {"type": "hive", "uri": self.server.uri, "warehouse": f"file://{self.warehouse}", **self.calls.properties(), **more}

    def point_at(self, location: str, table: str = "t") -> None:
        """Change the row as somebody does who may alter tables: the hash fits."""
        metadata = self.catalog().read_metadata_file(location)
        with _HiveClient(self.server.uri) as client:
            row = client.get_table(self.space, table)
            row.parameters = row_parameters(row.parameters, metadata, location=location)
            client.alter_table(self.space, table, row)

    @contextlib.contextmanager
    def lost_answer(self, catalog: Any) -> Iterator[None]:
        client = catalog._client
        faults = Faults(catalog)
        faults.fail("alter_table_with_environment_context", "after", OSError("the connection was lost"))
        faults.fail("create_table", "after", OSError("the connection was lost"))
        try:
            yield
        finally:
            catalog._client = client
