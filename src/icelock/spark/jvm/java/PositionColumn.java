package icelock;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** The positions of a batch's rows, which follow one another: Spark's own column of them makes a number object for each row. */
class PositionColumn extends ColumnVector {
  private final long first;

  PositionColumn(long first) {
    super(DataTypes.LongType);
    this.first = first;
  }

  /** Returns a batch with this column at index. */
  static ColumnarBatch in(ColumnarBatch batch, int index, long first) {
    ColumnVector[] columns = new ColumnVector[batch.numCols() + 1];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = i == index ? new PositionColumn(first) : batch.column(i < index ? i : i - 1);
    }
    return new ColumnarBatch(columns, batch.numRows());
  }

  @Override
  public void close() {}

  @Override
  public boolean hasNull() {
    return false;
  }

  @Override
  public int numNulls() {
    return 0;
  }

  @Override
  public boolean isNullAt(int row) {
    return false;
  }

  @Override
  public long getLong(int row) {
    return first + row;
  }

  @Override
  public boolean getBoolean(int row) {
    throw notSo();
  }

  @Override
  public byte getByte(int row) {
    throw notSo();
  }

  @Override
  public short getShort(int row) {
    throw notSo();
  }

  @Override
  public int getInt(int row) {
    throw notSo();
  }

  @Override
  public float getFloat(int row) {
    throw notSo();
  }

  @Override
  public double getDouble(int row) {
    throw notSo();
  }

  @Override
  public ColumnarArray getArray(int row) {
    throw notSo();
  }

  @Override
  public ColumnarMap getMap(int row) {
    throw notSo();
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    throw notSo();
  }

  @Override
  public UTF8String getUTF8String(int row) {
    throw notSo();
  }

  @Override
  public byte[] getBinary(int row) {
    throw notSo();
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    throw notSo();
  }

  private static UnsupportedOperationException notSo() {
    return new UnsupportedOperationException("positions are of type long");
  }
}
