"""The demo's looks at storage: first bytes, a search for values of the data, and flipped bytes in copies.

Not here: how damage is noticed (``io``).
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from rich.console import RenderableType
from rich.table import Table as View

from icelock.cli.demo_lake import Lake
from icelock.errors import IcelockError
from icelock.table.table import StaticTable, Table

if TYPE_CHECKING:
    import pandas as pd

_KINDS: Final = {b"AGS1": "encrypted stream (AGS1)", b"PARE": "encrypted Parquet (PME)"}
_FROM: Final = "demo.copy.of"
_TO: Final = "demo.copy.path"
_TOKEN: Final = re.compile(rb"[A-Z0-9]{5,}")


class CopyFileIO(PyArrowFileIO):
    """Storage in which one location is served from a copy."""

    def new_input(self, location: str) -> PyArrowFile:
        """Return the copy for its location, and the file itself for all others."""
        file = super().new_input(location)
        if location != self.properties[_FROM]:
            return file
        return PyArrowFile(location=location, path=self.properties[_TO], fs=file._filesystem)  # noqa: SLF001 - PyIceberg's own storage


def stored_files(warehouse: Path) -> tuple[RenderableType, list[str]]:
    """Return what the first four bytes of each file below a warehouse say, and the files in the clear, metadata.json aside."""
    counts: Counter[tuple[str, str, str]] = Counter()
    sizes: Counter[tuple[str, str, str]] = Counter()
    plain = []
    for path in sorted(path for path in warehouse.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            first = file.read(4)
        kind = (
            "snap-*.avro"
            if path.name.startswith("snap-")
            else f"*{''.join(path.suffixes[-2:]) if path.name.endswith('.json') else path.suffix}"
        )
        meaning = _KINDS.get(first)
        if meaning is None:
            meaning = "plain: schema, locations, wrapped keys" if path.name.endswith(".metadata.json") else "[red]PLAIN[/]"
            if not path.name.endswith(".metadata.json"):
                plain.append(str(path))
        row = (kind, repr(first)[2:-1], meaning)
        counts[row] += 1
        sizes[row] += path.stat().st_size
    view = View(title="Stored files and their first 4 bytes", title_justify="left")
    for column in ("files", "number", "bytes", "first 4", "meaning"):
        view.add_column(column, justify="right" if column in {"number", "bytes"} else "left")
    for (kind, first_text, meaning), number in sorted(counts.items()):
        view.add_row(kind, f"{number:,}", f"{sizes[kind, first_text, meaning]:,}", first_text.replace("[", r"\["), meaning)
    return view, plain


def search_values(warehouse: Path, source: pd.DataFrame) -> tuple[RenderableType, list[str], bool]:
    """Search every stored byte for the tail numbers and airlines of the data.

    Returns what is shown, the values on storage, and whether the same search finds all of them in the source. Two-letter carrier codes
    occur by chance in any random bytes; the carriers' names stand for them.
    """
    tails = {value.encode() for value in source.tailnum.dropna().unique()}
    names = {value.encode() for value in source.airline.dropna().unique()}
    control = source.tailnum.str.cat(sep=",", na_rep="").encode() + "\n".join(source.airline.unique()).encode()
    leaked: set[bytes] = set()
    stored = 0
    for path in (path for path in warehouse.rglob("*") if path.is_file()):
        data = path.read_bytes()
        stored += len(data)
        leaked |= _occurring(data, tails, names)
    works = _occurring(control, tails, names) == tails | names
    view = View(title="Values of the data that occur in the clear", title_justify="left")
    for column in ("searched", "bytes", f"of {len(tails):,} tail numbers", f"of {len(names)} carriers' names"):
        view.add_column(column, justify="left" if column == "searched" else "right")
    view.add_row("the source (does the search work?)", f"{len(control):,}", f"{len(tails):,}", f"{len(names)}")
    view.add_row("every stored byte", f"{stored:,}", f"{len(leaked & tails):,}", f"{len(leaked & names)}")
    return view, sorted(value.decode() for value in leaked), works


def _occurring(data: bytes, tails: set[bytes], names: set[bytes]) -> set[bytes]:
    found = {name for name in names if name in data}
    lengths = {len(tail) for tail in tails}
    for run in _TOKEN.findall(data):
        for length in lengths:
            found.update(run[i : i + length] for i in range(len(run) - length + 1) if run[i : i + length] in tails)
    return found


def flip_one_byte_each(table: Table, lake: Lake) -> list[tuple[str, int, IcelockError | None]]:
    """Flip the middle byte in a copy of a data file, a manifest and a manifest list, and read the table with each copy.

    Returns the kind of file, the byte's offset and the error that the reader got, if any.
    """
    snapshot = table.current_snapshot()
    assert snapshot is not None  # noqa: S101 - the demo has just written it
    manifest = snapshot.manifests(table.io)[0]
    data_file = manifest.fetch_manifest_entry(table.io)[0].data_file
    kinds = {"data file": data_file.file_path, "manifest": manifest.manifest_path, "manifest list": snapshot.manifest_list}
    return [(kind, *_flip(location, table, lake)) for kind, location in kinds.items()]


def _flip(location: str, table: Table, lake: Lake) -> tuple[int, IcelockError | None]:
    copy = lake.folder / "flipped-copy"
    shutil.copyfile(location.removeprefix("file://").removeprefix("file:"), copy)
    data = bytearray(copy.read_bytes())
    offset = len(data) // 2
    data[offset] ^= 0x01
    copy.write_bytes(data)
    properties = {**lake.properties(), "py-io-impl": f"{__name__}.CopyFileIO", _FROM: location, _TO: str(copy)}
    try:
        StaticTable.from_metadata(table.metadata_location, properties).scan().to_arrow()
    except IcelockError as e:
        return offset, e
    finally:
        copy.unlink()
    return offset, None
