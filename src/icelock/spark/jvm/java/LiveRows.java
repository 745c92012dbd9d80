package icelock;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;
import org.roaringbitmap.PeekableIntIterator;
import org.roaringbitmap.RoaringBitmap;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Those rows of a file that its deleted positions leave, in batches or row by row, as Spark's reader gives them. Compiled in a running session by
 * native.py; raw types, as Janino knows no generics.
 *
 * Values of a batch stay where they are: its columns are seen through the numbers of the live rows. A batch without deleted rows passes as it is.
 */
public class LiveRows extends AbstractIterator implements Closeable {
  private final Iterator rows;
  private final Positions deleted;
  private final RowGroups groups;
  private final int index;
  private final UnsafeProjection without;
  private Object next;

  private LiveRows(Iterator rows, byte[] deleted, RowGroups groups, int index, StructType whole) {
    this.rows = rows;
    this.deleted = new Positions(deleted);
    this.groups = groups;
    this.index = index;
    this.without = whole == null ? null : without(whole, index);
  }

  /** Takes positions from the column of that number; whole is the schema of the rows if that column is to be taken out of them, else null. */
  static LiveRows byColumn(Iterator rows, byte[] deleted, int index, StructType whole) {
    return new LiveRows(rows, deleted, null, index, whole);
  }

  /** Takes positions from the footer, for batches of whole row groups: Spark would make a number object for each row of a column of positions. */
  static LiveRows byFooter(Iterator rows, byte[] deleted) {
    return new LiveRows(rows, deleted, new RowGroups(rows), -1, null);
  }

  public boolean hasNext() {
    while (next == null && rows.hasNext()) {
      Object found = rows.next();
      next = found instanceof ColumnarBatch ? live((ColumnarBatch) found) : live((InternalRow) found);
    }
    return next != null;
  }

  public Object next() {
    if (!hasNext()) {
      throw new java.util.NoSuchElementException();
    }
    Object found = next;
    next = null;
    return found;
  }

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
      columns[i] = count == all ? column : new Seen(column, live, count);
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
    if (!deleted.before(first, first + live.length)) {
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
    List left = new ArrayList();
    for (int i = 0; i < whole.length(); i++) {
      if (i != index) {
        left.add(new BoundReference(i, whole.apply(i).dataType(), true));
      }
    }
    return UnsafeProjection$.MODULE$.create(CollectionConverters.asScala(left).toSeq());
  }

  /** Deleted positions in the 64-bit portable form of Roaring; they are asked for in ascending order. */
  public static class Positions {
    private final RoaringBitmap[] bitmaps;
    private final int[] keys;
    private int bitmap = -1;
    private PeekableIntIterator left;
    private long next;

    public Positions(byte[] bytes) {
      ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
      int count = (int) buffer.getLong();
      bitmaps = new RoaringBitmap[count];
      keys = new int[count];
      for (int i = 0; i < count; i++) {
        keys[i] = buffer.getInt();
        bitmaps[i] = new RoaringBitmap();
        try {
          bitmaps[i].deserialize((ByteBuffer) buffer.slice());
        } catch (IOException e) {
          throw new IllegalStateException("deleted positions cannot be read", e);
        }
        buffer.position(buffer.position() + bitmaps[i].serializedSizeInBytes());
      }
      step();
    }

    /** Returns whether a position, not less than those of earlier calls, is deleted. */
    public boolean has(long position) {
      while (next < position) {
        step();
      }
      return next == position;
    }

    /** Returns whether one of the positions from the first, which is as in has(), to before the end is deleted. */
    boolean before(long first, long end) {
      has(first);
      return next < end;
    }

    private void step() {
      while (left == null || !left.hasNext()) {
        bitmap++;
        if (bitmap >= keys.length) {
          next = Long.MAX_VALUE;
          return;
        }
        left = bitmaps[bitmap].getIntIterator();
      }
      next = ((long) keys[bitmap] << 32) | (left.next() & 0xffffffffL);
    }
  }

  /** The row groups that Spark's reader of batches reads, none of which it reads a part of. */
  static class RowGroups {
    private final List blocks;
    private int block = -1;
    private long position;
    private long left;

    RowGroups(Iterator rows) {
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
        throw new IllegalStateException("a batch of " + rows + " rows, where a row group has " + left + " left: this Spark reads Parquet otherwise");
      }
      long first = position;
      position += rows;
      left -= rows;
      return first;
    }
  }

  /** A column seen through the numbers of its live rows. */
  static class Seen extends ColumnVector {
    private final ColumnVector column;
    private final int[] live;
    private final int count;
    private Seen[] children;

    Seen(ColumnVector column, int[] live, int count) {
      super(column.dataType());
      this.column = column;
      this.live = live;
      this.count = count;
    }

    /** The reader's to free, with its batch. */
    public void close() {}

    public void closeIfFreeable() {}

    public boolean hasNull() {
      return column.hasNull();
    }

    public int numNulls() {
      int found = 0;
      for (int i = 0; i < count; i++) {
        found += isNullAt(i) ? 1 : 0;
      }
      return found;
    }

    public boolean isNullAt(int row) {
      return column.isNullAt(live[row]);
    }

    public boolean getBoolean(int row) {
      return column.getBoolean(live[row]);
    }

    public byte getByte(int row) {
      return column.getByte(live[row]);
    }

    public short getShort(int row) {
      return column.getShort(live[row]);
    }

    public int getInt(int row) {
      return column.getInt(live[row]);
    }

    public long getLong(int row) {
      return column.getLong(live[row]);
    }

    public float getFloat(int row) {
      return column.getFloat(live[row]);
    }

    public double getDouble(int row) {
      return column.getDouble(live[row]);
    }

    public ColumnarArray getArray(int row) {
      return column.getArray(live[row]);
    }

    public ColumnarMap getMap(int row) {
      return column.getMap(live[row]);
    }

    public Decimal getDecimal(int row, int precision, int scale) {
      return column.getDecimal(live[row], precision, scale);
    }

    public UTF8String getUTF8String(int row) {
      return column.getUTF8String(live[row]);
    }

    public byte[] getBinary(int row) {
      return column.getBinary(live[row]);
    }

    /** Fields of a struct have the struct's rows. */
    public ColumnVector getChild(int ordinal) {
      if (children == null || children.length <= ordinal) {
        Seen[] grown = new Seen[ordinal + 1];
        if (children != null) {
          System.arraycopy(children, 0, grown, 0, children.length);
        }
        children = grown;
      }
      if (children[ordinal] == null) {
        children[ordinal] = new Seen(column.getChild(ordinal), live, count);
      }
      return children[ordinal];
    }
  }
}
