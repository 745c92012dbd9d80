"""The batch of a stream that this thread runs, for the writes of ``foreachBatch`` in classic sessions.

Spark tells a function of ``foreachBatch`` the batch's number alone, and a new checkpoint counts from 0 again. But the function runs in the
query's own thread, whose local properties name the query. So its checkpoint says with which offsets the batch was planned, and the mark of
the batch (``table.epochs``) has their hash, as that of ``toTable``. Other threads know it if the user passes the properties on
(``pyspark.InheritableThread``).

Not here: what the mark means (``table.epochs``), Spark Connect, where no thread of the client's runs the query.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from icelock.spark.jvm.classes import load_native
from icelock.spark.settings.session import is_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icelock.table.epochs import Epoch

# Spark's names (StreamExecution.QUERY_ID_KEY, MicroBatchExecution.BATCH_ID_KEY).
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


def with_offsets(spark: SparkSession, epoch: Epoch | None) -> Epoch | None:
    """Return a batch with the hashes of its offsets and of those before it; the same one if this thread does not run a batch of its number.

    A number of the user's own that is another one than Spark's stands for no file of the checkpoint.
    """
    if epoch is None or epoch.offsets is not None or not is_classic(spark):
        return epoch
    query, number = (spark.sparkContext.getLocalProperty(name) for name in (_QUERY, _BATCH))
    if query is None or number != str(epoch.number):
        return epoch
    offsets, before = (load_native(spark).StreamOffsets.of(spark._jsparkSession, query, of) for of in (epoch.number, epoch.number - 1))
    return replace(epoch, offsets=offsets, before=before)
