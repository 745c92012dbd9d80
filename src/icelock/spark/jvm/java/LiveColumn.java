package icelock;

import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column of a batch as its live rows see it: row i is the column's row live[i]. */
class LiveColumn extends ColumnVector {
  private final ColumnVector column;
  private final int[] live;
  private final int count;
  private LiveColumn[] children;

  LiveColumn(ColumnVector column, int[] live, int count) {
    super(column.dataType());
    this.column = column;
    this.live = live;
    this.count = count;
  }

  /** The reader frees the column, with its batch. */
  @Override
  public void close() {}

  @Override
  public void closeIfFreeable() {}

  @Override
  public boolean hasNull() {
    return column.hasNull();
  }

  @Override
  public int numNulls() {
    int found = 0;
    for (int i = 0; i < count; i++) {
      found += isNullAt(i) ? 1 : 0;
    }
    return found;
  }

  @Override
  public boolean isNullAt(int row) {
    return column.isNullAt(live[row]);
  }

  @Override
  public boolean getBoolean(int row) {
    return column.getBoolean(live[row]);
  }

  @Override
  public byte getByte(int row) {
    return column.getByte(live[row]);
  }

  @Override
  public short getShort(int row) {
    return column.getShort(live[row]);
  }

  @Override
  public int getInt(int row) {
    return column.getInt(live[row]);
  }

  @Override
  public long getLong(int row) {
    return column.getLong(live[row]);
  }

  @Override
  public float getFloat(int row) {
    return column.getFloat(live[row]);
  }

  @Override
  public double getDouble(int row) {
    return column.getDouble(live[row]);
  }

  @Override
  public ColumnarArray getArray(int row) {
    return column.getArray(live[row]);
  }

  @Override
  public ColumnarMap getMap(int row) {
    return column.getMap(live[row]);
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    return column.getDecimal(live[row], precision, scale);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    return column.getUTF8String(live[row]);
  }

  @Override
  public byte[] getBinary(int row) {
    return column.getBinary(live[row]);
  }

  /** Fields of a struct have the struct's rows. */
  @Override
  public ColumnVector getChild(int ordinal) {
    if (children == null || children.length <= ordinal) {
      LiveColumn[] grown = new LiveColumn[ordinal + 1];
      if (children != null) {
        System.arraycopy(children, 0, grown, 0, children.length);
      }
      children = grown;
    }
    if (children[ordinal] == null) {
      children[ordinal] = new LiveColumn(column.getChild(ordinal), live, count);
    }
    return children[ordinal];
  }
}
