package icelock;

import java.io.DataOutput;
import java.io.IOException;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.io.WritableUtils;
import org.apache.parquet.crypto.DecryptionPropertiesFactory;
import org.apache.parquet.hadoop.ParquetInputFormat;
import org.apache.spark.sql.execution.datasources.FileFormat$;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;

/** Spark's Parquet format with a key for each file. */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino makes no bridge methods, and its overrides are raw
public class KeyedParquet extends ParquetFileFormat {
  private static final long serialVersionUID = 1L;
  private static final String OURS_ALONE = "icelock ";
  private final StructType data;

  @SuppressWarnings("serial") // of serializable parts
  private final SafeFilters filters;
  private final boolean deletes;

  /**
   * @param data the columns of the files, with field ids and defaults
   * @param filters which filters may be pushed into files
   * @param deletes whether some file has deleted positions
   */
  public KeyedParquet(StructType data, SafeFilters filters, boolean deletes) {
    this.data = data;
    this.filters = filters;
    this.deletes = deletes;
  }

  @Override
  public String shortName() {
    return "icelock";
  }

  @Override
  public String toString() {
    return "icelock";
  }

  @Override
  public Function1 buildReaderWithPartitionValues(org.apache.spark.sql.SparkSession session, StructType dataSchema,
      StructType partitionSchema, StructType required, Seq pushed, scala.collection.immutable.Map options, Configuration conf) {
    conf.set(DecryptionPropertiesFactory.CRYPTO_FACTORY_CLASS_PROPERTY_NAME, KeyOfThread.class.getName());
    LocalFiles.install(conf);
    S3Files.install(conf);
    StructType asked = (StructType) ids(required, data);
    int index = position(asked);
    StructType whole = null;
    boolean byFooter = (deletes || index >= 0) && options.get(FileFormat$.MODULE$.OPTION_RETURNING_BATCH()).contains("true");
    if (byFooter) {
      asked = index < 0 ? asked : without(asked, index);
      // Row groups are skipped, as in Java Iceberg, but no pages: the positions of a group's rows must follow one another.
      conf.setBoolean(ParquetInputFormat.COLUMN_INDEX_FILTERING_ENABLED, false);
    } else if (deletes && index < 0) {
      index = asked.length();
      asked = asked.add(ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME(), DataTypes.LongType);
      whole = Plans.and(asked, partitionSchema);
    }
    Function1 reader = super.buildReaderWithPartitionValues(
        session, dataSchema, partitionSchema, asked, (Seq) filters.safe(pushed), options, new Settings(conf));
    return new KeyedReader(reader, byFooter, index, whole);
  }

  /** Returns where Spark wants a row's position, or less than 0. */
  private static int position(StructType asked) {
    return Arrays.asList(asked.fieldNames()).indexOf(ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME());
  }

  private static StructType without(StructType columns, int index) {
    StructType found = new StructType();
    for (int i = 0; i < columns.length(); i++) {
      found = i == index ? found : found.add(columns.apply(i));
    }
    return found;
  }

  /** LiveColumns and PositionColumns must not be taken for Spark's own by generated code. */
  @Override
  public Option vectorTypes(StructType required, StructType partition, SQLConf conf) {
    return deletes || position(required) >= 0 ? Option.empty() : super.vectorTypes(required, partition, conf);
  }

  /**
   * Restores the metadata of nested fields, field ids included, which Spark's nested column pruning drops; and gives all fields names that
   * no file has. Spark finds a file's columns by id, but looks up the type to read one as by its name in the file, which may now be the
   * name of another column.
   */
  private static DataType ids(DataType pruned, DataType whole) {
    if (pruned instanceof StructType) {
      StructField[] fields = ((StructType) pruned).fields();
      StructField[] known = ((StructType) whole).fields();
      StructField[] found = new StructField[fields.length];
      for (int i = 0; i < fields.length; i++) {
        found[i] = fields[i];
        for (int j = 0; j < known.length; j++) {
          if (known[j].name().equals(fields[i].name())) {
            DataType kind = ids(fields[i].dataType(), known[j].dataType());
            found[i] = new StructField(OURS_ALONE + j, kind, fields[i].nullable(), known[j].metadata());
          }
        }
      }
      return new StructType(found);
    }
    if (pruned instanceof ArrayType) {
      ArrayType array = (ArrayType) pruned;
      return new ArrayType(ids(array.elementType(), ((ArrayType) whole).elementType()), array.containsNull());
    }
    if (pruned instanceof MapType) {
      MapType map = (MapType) pruned;
      MapType of = (MapType) whole;
      return new MapType(ids(map.keyType(), of.keyType()), ids(map.valueType(), of.valueType()), map.valueContainsNull());
    }
    return pruned;
  }

  /**
   * A configuration that goes to executors without the origin of each setting: Hadoop compresses one text for each of a thousand settings,
   * which takes a tenth of the time of a query of one row.
   */
  public static class Settings extends Configuration {
    public Settings(Configuration other) {
      super(other);
    }

    @Override
    public void write(DataOutput out) throws IOException {
      WritableUtils.writeVInt(out, size());
      Iterator<?> each = iterator();
      while (each.hasNext()) {
        Map.Entry<?, ?> entry = (Map.Entry<?, ?>) each.next();
        Text.writeString(out, (String) entry.getKey());
        Text.writeString(out, (String) entry.getValue());
        WritableUtils.writeCompressedStringArray(out, null);
      }
    }
  }
}
