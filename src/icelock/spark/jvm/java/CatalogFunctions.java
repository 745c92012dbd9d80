package icelock;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.LocalDate;
import java.util.Arrays;
import java.util.Locale;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The functions of a catalog: Iceberg's transforms, with the names, types and results of Java Iceberg's
 * (org.apache.iceberg.spark.functions), and iceberg_version. Spark finds their static methods invoke by the types of the arguments, and
 * calls them in the code that it generates.
 */
public class CatalogFunctions {
  static final String VERSION = "iceberg_version";
  private static final String[] NAMES = {VERSION, "years", "months", "days", "hours", "bucket", "truncate"};
  private static final long MICROS_OF_DAY = 86400000000L;
  private static final long MICROS_OF_HOUR = 3600000000L;

  private CatalogFunctions() {}

  static String[] names() {
    return NAMES;
  }

  /** Whether there is such a function; case does not count. */
  static boolean has(String name) {
    return Arrays.asList((Object[]) NAMES).contains(name.toLowerCase(Locale.ROOT));
  }

  /** A function whose argument types are not known yet. */
  public static class Unbound implements UnboundFunction {
    private static final long serialVersionUID = 1L;
    private final String name;
    private final String version;

    /** Takes a function's name, and what iceberg_version returns. */
    Unbound(String name, String version) {
      this.name = name.toLowerCase(Locale.ROOT);
      this.version = version;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public String description() {
      if (name.equals(VERSION)) {
        return name + " - Returns the version of icelock";
      }
      boolean numbered = name.equals("bucket") || name.equals("truncate");
      return name + (numbered ? "(number, col)" : "(col)") + " - Call Iceberg's transform of this name";
    }

    @Override
    public BoundFunction bind(StructType input) {
      if (name.equals(VERSION)) {
        check(input.length() == 0, name + " does not accept arguments");
        return new Version(version);
      }
      if (name.equals("bucket") || name.equals("truncate")) {
        check(input.length() == 2, "Wrong number of inputs (expected a number and a value)");
        DataType number = input.apply(0).dataType();
        check(number instanceof ByteType || number instanceof ShortType || number instanceof IntegerType,
            "Expected the number to be tinyint, smallint or int");
        return numbered(input.apply(1).dataType());
      }
      check(input.length() == 1, "Wrong number of inputs (expected value)");
      return ofTime(input.apply(0).dataType());
    }

    private BoundFunction numbered(DataType given) {
      boolean small = given instanceof ByteType || given instanceof ShortType;
      boolean known = small || given instanceof IntegerType || given instanceof LongType || given instanceof DecimalType
          || given instanceof StringType || given instanceof BinaryType;
      DataType type = given;
      if (given instanceof StringType) { // of any collation
        type = DataTypes.StringType;
      }
      if (name.equals("truncate")) {
        check(known, "Expected truncation col to be tinyint, smallint, int, bigint, decimal, string, or binary");
        return new Truncate(new DataType[] {DataTypes.IntegerType, type}, type);
      }
      check(known || given instanceof DateType || isTimestamp(given),
          "Expected column to be date, tinyint, smallint, int, bigint, decimal, timestamp, string, or binary");
      if (small) {
        type = DataTypes.IntegerType;
      }
      return new Bucket(new DataType[] {DataTypes.IntegerType, type}, DataTypes.IntegerType);
    }

    private BoundFunction ofTime(DataType given) {
      DataType[] input = new DataType[] {given};
      boolean date = given instanceof DateType;
      if (name.equals("hours")) {
        check(isTimestamp(given), "Expected value to be timestamp: " + given.catalogString());
        return new Hours(input, DataTypes.IntegerType);
      }
      check(date || isTimestamp(given), "Expected value to be date or timestamp: " + given.catalogString());
      if (name.equals("days")) {
        return new Days(input, DataTypes.DateType);
      }
      if (name.equals("months")) {
        return new Months(input, DataTypes.IntegerType);
      }
      return new Years(input, DataTypes.IntegerType);
    }

    private static boolean isTimestamp(DataType type) {
      return type instanceof TimestampType || type instanceof TimestampNTZType;
    }

    /** Spark tells users what is in this exception. */
    private static void check(boolean right, String message) {
      if (!right) {
        throw new UnsupportedOperationException(message);
      }
    }
  }

  /** What the functions have in common. */
  @SuppressWarnings("rawtypes") // Janino makes no bridge methods
  public abstract static class Bound implements ScalarFunction {
    private static final long serialVersionUID = 1L;
    private final String name;
    private final DataType[] input;
    private final DataType result;

    Bound(String name, DataType[] input, DataType result) {
      this.name = name;
      this.input = input;
      this.result = result;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public DataType[] inputTypes() {
      return input;
    }

    @Override
    public DataType resultType() {
      return result;
    }

    @Override
    public String canonicalName() {
      return "icelock." + name + "(" + (input.length == 0 ? "" : input[input.length - 1].catalogString()) + ")";
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Bound && canonicalName().equals(((Bound) other).canonicalName());
    }

    @Override
    public int hashCode() {
      return canonicalName().hashCode();
    }
  }

  /** The version of icelock. */
  public static class Version extends Bound {
    private static final long serialVersionUID = 1L;
    private final String version;

    Version(String version) {
      super(VERSION, new DataType[0], DataTypes.StringType);
      this.version = version;
    }

    @Override
    public boolean isResultNullable() {
      return false;
    }

    @Override
    public Object produceResult(InternalRow input) {
      return UTF8String.fromString(version);
    }
  }

  /** The transform bucket: 32-bit Murmur3 of the value, seed 0 (spec, "Bucket Transform Details", Appendix B). */
  public static class Bucket extends Bound {
    private static final long serialVersionUID = 1L;

    Bucket(DataType[] input, DataType result) {
      super("bucket", input, result);
    }

    public static int invoke(int buckets, int value) {
      return bucket(buckets, Murmur3_x86_32.hashLong(value, 0));
    }

    public static int invoke(int buckets, long value) {
      return bucket(buckets, Murmur3_x86_32.hashLong(value, 0));
    }

    public static Integer invoke(int buckets, Decimal value) {
      return value == null ? null : invoke(buckets, value.toJavaBigDecimal().unscaledValue().toByteArray());
    }

    public static Integer invoke(int buckets, UTF8String value) {
      return value == null ? null : invoke(buckets, value.getBytes());
    }

    public static Integer invoke(int buckets, byte[] value) {
      if (value == null) {
        return null;
      }
      return Integer.valueOf(bucket(buckets, Murmur3_x86_32.hashUnsafeBytes2(value, Platform.BYTE_ARRAY_OFFSET, value.length, 0)));
    }

    private static int bucket(int buckets, int hash) {
      return (hash & Integer.MAX_VALUE) % buckets;
    }
  }

  /** The transform truncate (spec, "Truncate Transform Details"). */
  public static class Truncate extends Bound {
    private static final long serialVersionUID = 1L;

    Truncate(DataType[] input, DataType result) {
      super("truncate", input, result);
    }

    public static byte invoke(int width, byte value) {
      return (byte) (value - ((value % width) + width) % width);
    }

    public static short invoke(int width, short value) {
      return (short) (value - ((value % width) + width) % width);
    }

    public static int invoke(int width, int value) {
      return value - ((value % width) + width) % width;
    }

    public static long invoke(int width, long value) {
      return value - ((value % width) + width) % width;
    }

    public static Decimal invoke(int width, Decimal value) {
      if (value == null) {
        return null;
      }
      BigDecimal given = value.toJavaBigDecimal();
      BigInteger rest = given.unscaledValue().mod(BigInteger.valueOf(width)); // never negative
      return Decimal.apply(given.subtract(new BigDecimal(rest, given.scale())));
    }

    public static UTF8String invoke(int width, UTF8String value) {
      return value == null ? null : value.substring(0, width);
    }

    public static byte[] invoke(int width, byte[] value) {
      return value == null ? null : Arrays.copyOf(value, Math.min(width, value.length));
    }
  }

  /** The transform years: since 1970, of a date or of microseconds. */
  public static class Years extends Bound {
    private static final long serialVersionUID = 1L;

    Years(DataType[] input, DataType result) {
      super("years", input, result);
    }

    public static int invoke(int days) {
      return LocalDate.ofEpochDay(days).getYear() - 1970;
    }

    public static int invoke(long micros) {
      return invoke(Days.invoke(micros));
    }
  }

  /** The transform months: since January 1970. */
  public static class Months extends Bound {
    private static final long serialVersionUID = 1L;

    Months(DataType[] input, DataType result) {
      super("months", input, result);
    }

    public static int invoke(int days) {
      LocalDate date = LocalDate.ofEpochDay(days);
      return (date.getYear() - 1970) * 12 + date.getMonthValue() - 1;
    }

    public static int invoke(long micros) {
      return invoke(Days.invoke(micros));
    }
  }

  /** The transform days: since 1970-01-01, which is a date. */
  public static class Days extends Bound {
    private static final long serialVersionUID = 1L;

    Days(DataType[] input, DataType result) {
      super("days", input, result);
    }

    public static int invoke(int days) {
      return days;
    }

    public static int invoke(long micros) {
      return (int) Math.floorDiv(micros, MICROS_OF_DAY);
    }
  }

  /** The transform hours: since 1970-01-01 00:00. */
  public static class Hours extends Bound {
    private static final long serialVersionUID = 1L;

    Hours(DataType[] input, DataType result) {
      super("hours", input, result);
    }

    public static int invoke(long micros) {
      return (int) Math.floorDiv(micros, MICROS_OF_HOUR);
    }
  }
}
