"""How many bytes of a batch's buffers its rows use: ``nbytes``, but for any batch.

pyarrow's ``nbytes`` (26.0) ends the process for a list or map without rows and without offsets, which the format allows and Spark's
Arrow writer produces inside other lists: it reads the first offset unchecked. Here a column without rows is not read.

Not here: what the rows take on storage (``arrow.write.parquet_file``).
"""

from __future__ import annotations

import pyarrow as pa


def used_bytes(batch: pa.RecordBatch | pa.Table) -> int:
    """Return the bytes that the rows of a batch use; in shared buffers only its own rows count."""
    if isinstance(batch, pa.Table):
        return sum(used_bytes(piece) for piece in batch.to_batches())
    if not any(pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) for kind in batch.schema.types):
        return int(batch.nbytes)
    return sum(_used(column) for column in batch.columns)


def _used(array: pa.Array) -> int:
    count, kind = len(array), array.type
    if not count:
        return 0
    if isinstance(array, pa.ExtensionArray):
        return _used(array.storage)
    validity = (count + 7) // 8 if array.null_count else 0
    if pa.types.is_struct(kind):
        return validity + sum(_used(array.field(i)) for i in range(kind.num_fields))
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        start, stop = array.offsets[0].as_py(), array.offsets[count].as_py()
        children = (array.keys, array.items) if pa.types.is_map(kind) else (array.values,)
        return validity + int(array.offsets.nbytes) + sum(_used(child.slice(start, stop - start)) for child in children)
    return int(array.nbytes)
