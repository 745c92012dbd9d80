package icelock;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * The rows of a file without the deleted ones, in batches or one by one, as Spark's reader returns them.
 *
 * Values of a batch are not copied: LiveColumn maps its rows. A batch without deleted rows is passed on unchanged.
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino makes no bridge methods
public class LiveRows extends AbstractIterator implements Closeable {
  private final Iterator<?> rows;
  private final DeletedPositions deleted;
  private final RowGroups groups;
  private final int index;
  private final UnsafeProjection without;
  private Object next;

  private LiveRows(Iterator<?> rows, byte[] deleted, RowGroups groups, int index, StructType whole) {
    this.rows = rows;
    this.deleted = new DeletedPositions(deleted);
    this.groups = groups;
    this.index = index;
    this.without = whole == null ? null : without(whole, index);
  }

  /** Takes positions from the column at index; whole is the schema of the rows if that column is to be left out, else null. */
  static LiveRows byColumn(Iterator<?> rows, byte[] deleted, int index, StructType whole) {
    return new LiveRows(rows, deleted, null, index, whole);
  }

  /** Takes positions from the footer, for batches of whole row groups: Spark boxes each value of a column of positions. */
  static LiveRows byFooter(Iterator<?> rows, byte[] deleted) {
    return new LiveRows(rows, deleted, new RowGroups(rows), -1, null);
  }

  @Override
  public boolean hasNext() {
    while (next == null && rows.hasNext()) {
      Object found = rows.next();
      next = found instanceof ColumnarBatch ? live((ColumnarBatch) found) : live((InternalRow) found);
    }
    return next != null;
  }

  @Override
  public Object next() {
    if (!hasNext()) {
      throw new java.util.NoSuchElementException();
    }
    Object found = next;
    next = null;
    return found;
  }

  @Override
  public void close() throws IOException {
    if (rows instanceof Closeable) {
      ((Closeable) rows).close();
    }
  }

  private Object live(InternalRow row) {
    if (deleted.has(row.getLong(index))) {
      return null;
    }
    return without == null ? row : without.apply(row);
  }

  private Object live(ColumnarBatch batch) {
    int all = batch.numRows();
    int[] live = new int[all];
    int count = groups == null ? live(batch.column(index), live) : live(groups.next(all), live);
    if (count == 0) {
      return null;
    }
    if (count == all && without == null) {
      return batch;
    }
    ColumnVector[] columns = new ColumnVector[without == null ? batch.numCols() : batch.numCols() - 1];
    for (int i = 0; i < columns.length; i++) {
      ColumnVector column = batch.column(without == null || i < index ? i : i + 1);
      columns[i] = count == all ? column : new LiveColumn(column, live, count);
    }
    return new ColumnarBatch(columns, count);
  }

  private int live(ColumnVector positions, int[] live) {
    int count = 0;
    for (int i = 0; i < live.length; i++) {
      if (!deleted.has(positions.getLong(i))) {
        live[count++] = i;
      }
    }
    return count;
  }

  private int live(long first, int[] live) {
    if (!deleted.any(first, first + live.length)) {
      return live.length;
    }
    int count = 0;
    for (int i = 0; i < live.length; i++) {
      if (!deleted.has(first + i)) {
        live[count++] = i;
      }
    }
    return count;
  }

  private static UnsafeProjection without(StructType whole, int index) {
    List<Object> left = new ArrayList<>();
    for (int i = 0; i < whole.length(); i++) {
      if (i != index) {
        left.add(new BoundReference(i, whole.apply(i).dataType(), true));
      }
    }
    return UnsafeProjection$.MODULE$.create((Seq) Plans.seq(left));
  }

  /** The row groups that Spark's reader of batches reads, each as a whole. */
  static class RowGroups {
    private final List<?> blocks;
    private int block = -1;
    private long position;
    private long left;

    RowGroups(Iterator<?> rows) {
      blocks = OpenedFile.reader(rows).getRowGroups();
    }

    /** Returns the position of the first row of the next batch. */
    long next(int rows) {
      while (left == 0) {
        block++;
        BlockMetaData found = (BlockMetaData) blocks.get(block);
        position = found.getRowIndexOffset();
        left = found.getRowCount();
      }
      if (rows > left) {
        throw new IllegalStateException(
            "a batch of " + rows + " rows, where a row group has " + left + " left: this Spark version is not supported");
      }
      long first = position;
      position += rows;
      left -= rows;
      return first;
    }
  }
}
