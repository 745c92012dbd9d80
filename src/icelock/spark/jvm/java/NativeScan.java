package icelock;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's own Parquet scan over the files of an icelock plan. PlannedFiles gives Spark the files of each query, KeyedParquet builds Spark's
 * reader for them, KeyedReader opens a file with it.
 *
 * A file's key travels with the split that reads the file, beside its path: it is in no option, broadcast or setting, and Parquet has it
 * only while the file is opened.
 */
public class NativeScan {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String[][] OURS = {{"spark.sql.parquet.fieldId.read.enabled", "true"},
      // A file without ids is an error, not nulls.
      {"spark.sql.parquet.fieldId.read.ignoreMissing", "false"},
      // Without these some defaults of columns would be nulls.
      {"spark.sql.parquet.enableVectorizedReader", "true"}, {"spark.sql.parquet.enableNestedColumnVectorizedReader", "true"},
      // A struct whose fields are all newer than the file is not null.
      {"spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing", "false"},
      // Iceberg knows one calendar, and no text in binary columns.
      {"spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED"}, {"spark.sql.parquet.int96RebaseModeInRead", "CORRECTED"},
      {"spark.sql.parquet.int96TimestampConversion", "false"}, {"spark.sql.parquet.int96AsTimestamp", "true"},
      {"spark.sql.parquet.binaryAsString", "false"}, {"spark.sql.parquet.inferTimestampNTZ.enabled", "true"}};

  /** By the user's session: its settings for files, and the session that reads with them. */
  private static final Map<SparkSession, Object[]> READING = new WeakHashMap<>();

  private NativeScan() {}

  /**
   * Returns the rows of planned files.
   *
   * @param user the session that the rows are for
   * @param description what is read, as JSON (Scan in native.py)
   * @param plan returns, for Spark's filters, the files in an Arrow stream: path, size, key, bitmap of deleted positions, and the values
   *     of the partition columns
   */
  @SuppressWarnings({"cast", "rawtypes", "unchecked"}) // Scala's collections, and Janino does not cast what generic methods return
  public static Dataset<?> open(SparkSession user, String description, Callbacks.Target plan) throws IOException {
    JsonNode scan = JSON.readTree(description);
    StructType data = schema(scan, "data");
    StructType partition = schema(scan, "partition");
    long size = scan.get("size").asLong();
    Map<String, String> options = new HashMap<>();
    // The user's session may say otherwise; then a tampered file would be missing rows.
    options.put("ignoreCorruptFiles", "false");
    options.put("ignoreMissingFiles", "false");
    HadoopFsRelation relation = new HadoopFsRelation(
        new PlannedFiles(partition, plan, size, scan.get("rows").asLong(), scan.get("seen").asText()), partition, data, Option.empty(),
        new KeyedParquet(data, new SafeFilters(texts(scan.get("pushable")), texts(scan.get("floats"))), scan.get("deletes").asBoolean()),
        (scala.collection.immutable.Map) Map$.MODULE$.from(CollectionConverters.asScala(options)), reading(user));
    // Users do not see the ids; KeyedParquet has them.
    Seq attributes = DataTypeUtils$.MODULE$.toAttributes(Plans.and(schema(scan, "shown"), partition));
    LogicalPlan files = LogicalRelation$.MODULE$.apply(relation, attributes, Option.empty(), false, Option.empty());
    // Spark does not say of a scan that it has one partition, and would exchange rows needlessly.
    boolean one = scan.get("count").asInt() == 1 && onePartition(user, size);
    Dataset found = Dataset.ofRows(user, one ? new Repartition(1, false, files) : files);
    if (scan.get("columns").isNull()) {
      return found;
    }
    List<Object> columns = new ArrayList<>();
    for (Object name : texts(scan.get("columns"))) {
      columns.add(functions.col((String) name));
    }
    return (Dataset) found.select((Seq) Plans.seq(columns));
  }

  /** Whether Spark would read a file as one partition, however many cores there are. */
  private static boolean onePartition(SparkSession user, long size) {
    SQLConf conf = user.sessionState().conf();
    return size <= Math.min(conf.filesOpenCostInBytes(), conf.filesMaxPartitionBytes());
  }

  /** Returns a session with the user's settings for files that reads by field id; it is made again when the settings change. */
  private static SparkSession reading(SparkSession user) {
    Map<String, Object> settings = new TreeMap<>();
    for (Object each : CollectionConverters.asJava(user.conf().getAll()).entrySet()) {
      Map.Entry<?, ?> entry = (Map.Entry<?, ?>) each;
      String name = (String) entry.getKey();
      if (name.startsWith("spark.sql.files.") || name.startsWith("spark.sql.parquet.") || name.equals("spark.sql.caseSensitive")) {
        settings.put(name, entry.getValue());
      }
    }
    synchronized (READING) {
      Object[] known = known(user);
      if (known == null || !known[0].equals(settings)) {
        known = new Object[] {settings, made(user, settings)};
        READING.put(user, known);
      }
      return (SparkSession) known[1];
    }
  }

  @SuppressWarnings("cast") // as in open
  private static Object[] known(SparkSession user) {
    return (Object[]) READING.get(user);
  }

  @SuppressWarnings("cast") // as in open
  private static SparkSession made(SparkSession user, Map<?, ?> settings) {
    SparkSession made = (SparkSession) user.newSession();
    for (Object each : settings.entrySet()) {
      Map.Entry<?, ?> entry = (Map.Entry<?, ?>) each;
      if (made.conf().isModifiable((String) entry.getKey())) {
        made.conf().set((String) entry.getKey(), (String) entry.getValue());
      }
    }
    for (String[] setting : OURS) {
      made.conf().set(setting[0], setting[1]);
    }
    return made;
  }

  private static StructType schema(JsonNode scan, String name) {
    return (StructType) DataType.fromJson(scan.get(name).asText());
  }

  private static List<String> texts(JsonNode array) {
    List<String> found = new ArrayList<>();
    for (Object each : array) {
      found.add(((JsonNode) each).asText());
    }
    return found;
  }
}
