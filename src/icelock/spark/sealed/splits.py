"""What goes to tasks as rows of a DataFrame, sealed: such rows are in Spark's plan, and a split has the keys of its files.

The key is for one job. It goes with the function that tasks run, and the rows go with the tasks: neither has keys of files without the
other.

Not here: splits (``spark.task.splits``), how jobs run (``spark.driver.rewrite_here``, ``spark.statements.metadata_tables``).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from icelock.format import aes_gcm

if TYPE_CHECKING:
    import pyarrow as pa

    from icelock.keys.entropy import Entropy

_AAD: Final = b"icelock spark split"
KEY_LENGTH: Final = 32


def sealed_rows(key: bytes, splits: Iterable[object], entropy: Entropy) -> pa.Table:
    """Return splits as the rows of a table of one column."""
    import pyarrow as pa

    sealed = [aes_gcm.encrypt(key, entropy.random_bytes(aes_gcm.NONCE_LENGTH), pickle.dumps(split), _AAD) for split in splits]
    return pa.table({"split": pa.array(sealed, pa.binary())})


def open_split(key: bytes, sealed: bytes) -> Any:
    """Return the split of a row; one that was changed is an IntegrityError."""
    return pickle.loads(aes_gcm.decrypt(key, sealed, _AAD))  # noqa: S301 - authenticated


def open_splits(key: bytes, rows: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """Yield the splits of the rows of one task; errors as ``open_split``."""
    return (open_split(key, value.as_py()) for batch in rows for value in batch.column(0))
