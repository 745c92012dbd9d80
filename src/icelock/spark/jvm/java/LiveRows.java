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

  /** Takes no positions from a column if there are row groups: then the column at index, if it is not less than 0, is made of them. */
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

  /** Takes positions from the footer, for batches of whole row groups, and puts them into a new column at index (less than 0: none). */
  static LiveRows byFooter(Iterator<?> rows, byte[] deleted, int index) {
    return new LiveRows(rows, deleted, new RowGroups(rows), index, null);
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
    if (groups == null) {
      int[] live = new int[batch.numRows()];
      return live(batch, live, live(batch.column(index), live));
    }
    int all = batch.numRows();
    long first = groups.next(all);
    ColumnarBatch whole = index < 0 ? batch : PositionColumn.in(batch, index, first);
    if (!deleted.any(first, first + all)) {
      return all == 0 ? null : whole;
    }
    int[] live = new int[all];
    return live(whole, live, live(first, live));
  }

  private Object live(ColumnarBatch batch, int[] live, int count) {
    int all = live.length;
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
