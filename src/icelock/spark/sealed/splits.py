"""Splits that go to tasks as rows of a DataFrame, sealed: such rows are in Spark's plan, and a split has the keys of its files.

The key is for one job. It goes with the function that tasks run, and the rows go with the tasks: neither has keys of files without the
other.

Not here: splits (``spark.task.splits``), how the job runs (``spark.driver.rewrite_here``).
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final

from icelock.format import aes_gcm

if TYPE_CHECKING:
    from icelock.keys.entropy import Entropy
    from icelock.spark.task.row_rewrite import RewriteSplit

_AAD: Final = b"icelock spark split"
KEY_LENGTH: Final = 32


def seal_split(key: bytes, split: RewriteSplit, entropy: Entropy) -> bytes:
    """Return a split as the value of a row."""
    return aes_gcm.encrypt(key, entropy.random_bytes(aes_gcm.NONCE_LENGTH), pickle.dumps(split), _AAD)


def open_split(key: bytes, sealed: bytes) -> RewriteSplit:
    """Return the split of a row; one that was changed is an IntegrityError."""
    split: RewriteSplit = pickle.loads(aes_gcm.decrypt(key, sealed, _AAD))  # noqa: S301 - authenticated
    return split
