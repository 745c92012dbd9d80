"""A file of deleted positions: rows of data file and position, in this order (spec, "Position Delete Files").

Not here: deletion vectors (``io.puffin.write``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyiceberg.manifest import DataFileContent
from pyroaring import BitMap64

from icelock.arrow.read.deletes import POSITIONS
from icelock.arrow.types import output_schema
from icelock.arrow.write.context import WriteContext
from icelock.arrow.write.whole_file import one_file
from icelock.arrow.write.writer import write_data_files
from icelock.keys.entropy import Entropy
from icelock.metadata.manifest import DataFile, file_with

_WHOLE_BOUNDS: Final = {"write.metadata.metrics.default": "full"}  # readers tell by them which data files it is about


def write_positions(write: WriteContext, deleted: Iterable[tuple[str, BitMap64]], *, task_id: int, entropy: Entropy) -> DataFile:
    """Write one file; return it. Its partition is left empty: the caller knows it.

    Args:
        write: of the table.
        deleted: locations of data files, each once, with the positions of deleted rows; at least one.
        task_id: part of the new file's name.
        entropy: where its key comes from.

    Raises:
        PolicyError, OSError: it cannot be written.
    """
    found = sorted(deleted)
    context = one_file(write, POSITIONS)
    context = replace(context, properties={**context.properties, **_WHOLE_BOUNDS})
    schema = output_schema(POSITIONS)
    rows = (
        pa.RecordBatch.from_arrays([pa.repeat(path, len(of)).cast(schema.field(0).type), pa.array(of, pa.int64())], schema=schema)
        for path, of in found
    )
    (made,) = write_data_files(context, rows, task_id=task_id, entropy=entropy)
    only = found[0][0] if len(found) == 1 else None
    return file_with(made, content=DataFileContent.POSITION_DELETES, referenced_data_file=only)
