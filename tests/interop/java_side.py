"""Java Iceberg as the tests use it: SQL in the shared Spark session, Iceberg's API through py4j, the metastore's row.

Not here: icelock (``our_side``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog.hive import _HiveClient
from pyspark.sql.pandas.types import from_arrow_schema

from tests.interop.session import DATABASE, Session
from tests.interop.views import EVERYTHING, View

V3_KEYED: Final = {"format-version": "3", "encryption.key-id": "keyA"}


def frame_of(spark: Any, rows: pa.Table) -> Any:
    """Return a DataFrame of Arrow rows; a timestamp without a zone is one in Spark too, whatever the session prefers."""
    return spark.createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))


def selected(view: View) -> str:
    """Return what SQL selects for a view: its columns, for metadata columns are there only when they are named."""
    return ", ".join(f"`{name}`" for name in view.columns) or "*"


def rows_of_frame(frame: Any, view: View) -> pa.Table:
    """Return what a view asks of a DataFrame."""
    frame = frame.where(view.where) if view.where else frame
    if view.total:
        return frame.selectExpr("count(*) AS n", f"sum(`{view.total}`) AS total").toArrow()
    return (frame.select(*(f"`{name}`" for name in view.columns)) if view.columns else frame).toArrow()


class Java:
    """Tables are named without catalog and database."""

    def __init__(self, session: Session) -> None:
        self.spark = session.spark
        self.jvm = session.spark._jvm
        self.database = DATABASE
        self.warehouse = session.warehouse
        self._uri = session.uri

    def sql(self, text: str, **tables: str) -> Any:
        """Run SQL; ``{t}`` and other names in braces become full table names."""
        return self.spark.sql(text.format(**{name: f"ice.{DATABASE}.{table}" for name, table in tables.items()}))

    def create(self, table: str, columns: str | pa.Schema, *, by: str = "", properties: Mapping[str, str] | None = None) -> None:
        """Create an encrypted table; ``by`` (partitioning) is SQL, and so are ``columns`` unless they are an Arrow schema."""
        if isinstance(columns, pa.Schema):
            columns = frame_of(self.spark, columns.empty_table())._jdf.schema().toDDL()
        partitioned = f"PARTITIONED BY ({by})" if by else ""
        given = {**V3_KEYED, **(properties or {})}
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
        self.sql(f"CREATE TABLE {{t}} ({columns}) USING iceberg {partitioned} TBLPROPERTIES ({listed})", t=table)

    def insert(self, table: str, rows: pa.Table, *, branch: str = "") -> None:
        """Append rows as one file for each partition."""
        frame = frame_of(self.spark, rows).coalesce(1)
        frame.writeTo(f"ice.{DATABASE}.{table}" + (f".branch_{branch}" if branch else "")).append()

    def read(self, table: str, view: View = EVERYTHING) -> pa.Table:
        """Return the rows that Java reads."""
        at = ""
        if view.as_of_ms is not None:
            at = f"TIMESTAMP AS OF timestamp_millis({view.as_of_ms})"
        elif view.ref or view.snapshot_id is not None:
            at = f"VERSION AS OF {view.snapshot_id}" if view.ref is None else f"VERSION AS OF '{view.ref}'"
        return rows_of_frame(self.spark.sql(f"SELECT {selected(view)} FROM ice.{DATABASE}.{table} {at}"), view)

    def table(self, table: str) -> Any:
        """Return Iceberg's ``Table``, loaded anew: this checks the hash and the keys."""
        load = self.jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable
        return load(self.spark._jsparkSession, f"ice.{DATABASE}.{table}")

    def catalog(self) -> Any:
        """Return Iceberg's ``HiveCatalog``."""
        return self.spark._jsparkSession.sessionState().catalogManager().catalog("ice").icebergCatalog()

    def create_by_api(self, table: str, schema: Any, spec: Any = None, properties: Mapping[str, str] | None = None) -> None:
        """Create an encrypted table that SQL cannot say."""
        iceberg = self.jvm.org.apache.iceberg
        name = iceberg.catalog.TableIdentifier.parse(f"{DATABASE}.{table}")
        given = self.mapping({**V3_KEYED, **(properties or {})})
        self.catalog().createTable(name, schema, spec or iceberg.PartitionSpec.unpartitioned(), given)

    def schema(self, **types: Any) -> Any:
        """Return a schema of optional columns, ids from 1."""
        iceberg = self.jvm.org.apache.iceberg
        field = iceberg.types.Types.NestedField.optional
        return iceberg.Schema(self.listing(field(i, name, kind) for i, (name, kind) in enumerate(types.items(), 1)))

    def call(self, procedure: str, table: str, arguments: str = "") -> Any:
        """Run one of Iceberg's procedures on a table."""
        more = f", {arguments}" if arguments else ""
        return self.spark.sql(f"CALL ice.system.{procedure}(table => '{DATABASE}.{table}'{more})").collect()

    def metadata_table(self, table: str, name: str, columns: str = "*") -> list[dict[str, Any]]:
        """Return one of Iceberg's metadata tables, such as ``files``."""
        rows: list[dict[str, Any]] = self.spark.sql(f"SELECT {columns} FROM ice.{DATABASE}.{table}.{name}").toArrow().to_pylist()
        return rows

    def parameters(self, table: str) -> dict[str, str]:
        """Return the parameters of the table's row in the metastore."""
        with _HiveClient(self._uri) as client:
            return dict(client.get_table(DATABASE, table).parameters)

    def alter_parameters(self, table: str, put: Mapping[str, str] | None = None, drop: tuple[str, ...] = ()) -> None:
        """Change the table's row as someone does who may write to the metastore."""
        with _HiveClient(self._uri) as client:
            row = client.get_table(DATABASE, table)
            row.parameters = {**{k: v for k, v in row.parameters.items() if k not in drop}, **(put or {})}
            client.alter_table(DATABASE, table, row)

    def listing(self, values: Iterable[Any]) -> Any:
        """Return a Java list."""
        made = self.jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made

    def mapping(self, values: Mapping[str, Any]) -> Any:
        """Return a Java map."""
        made = self.jvm.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made

    def rows(self, *rows: Mapping[str, Any]) -> Any:
        """Return rows for ``RowChanges``."""
        return self.listing(self.mapping(row) for row in rows)
