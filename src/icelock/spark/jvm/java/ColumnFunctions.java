package icelock;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.UUID;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Functions on columns that Spark does not have. */
public class ColumnFunctions {
  private ColumnFunctions() {}

  /** Returns UUIDs of 16 bytes as text in lower case. */
  public static Column uuidText(Column column) {
    return functions.udf(new UuidText(), DataTypes.StringType).apply(seq(new Column[] {column}));
  }

  /** Returns whether a bit is set in a row of a table of bits, whose rows have width bytes; bit 0 is the lowest of the first byte. */
  public static Column among(byte[] bits, int width, Column row, Column bit) {
    return functions.udf(new Among(bits, width), DataTypes.BooleanType).apply(seq(new Column[] {row, bit}));
  }

  private static Seq<Column> seq(Column[] columns) {
    return CollectionConverters.asScala(Arrays.asList(columns)).toSeq();
  }

  /** See uuidText. */
  public static class UuidText implements UDF1<Object, Object> {
    private static final long serialVersionUID = 1L;

    @Override
    public Object call(Object value) {
      if (value == null) {
        return null;
      }
      ByteBuffer bytes = ByteBuffer.wrap((byte[]) value);
      return new UUID(bytes.getLong(), bytes.getLong()).toString();
    }
  }

  /** See among. */
  public static class Among implements UDF2<Object, Object, Object> {
    private static final long serialVersionUID = 1L;
    private final byte[] bits;
    private final int width;

    public Among(byte[] bits, int width) {
      this.bits = bits;
      this.width = width;
    }

    @Override
    public Object call(Object row, Object bit) {
      int number = ((Integer) bit).intValue();
      int at = ((Integer) row).intValue() * width + (number >> 3);
      return (bits[at] >> (number & 7) & 1) == 1 ? Boolean.TRUE : Boolean.FALSE;
    }
  }
}
