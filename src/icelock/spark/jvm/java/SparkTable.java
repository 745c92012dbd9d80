package icelock;

import java.util.Arrays;
import java.util.Collections;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsDelete;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table, or one of its metadata tables, as Spark's analyzer knows it. Its rows are those of a DataFrame that Python makes
 * (TableRelations), and DataFrames are what its writes give to Python (TableCommands).
 */
public class SparkTable implements SupportsRead, SupportsMetadataColumns, Supplier<Object> {
  private static final AtomicLong LOADED = new AtomicLong();
  final PythonProcess python;
  private final long number = LOADED.incrementAndGet();
  private final Map<?, ?> described;
  private final StructType schema;

  @SuppressWarnings("serial") // never serialized
  private final Map<Object, Object> frames = new LinkedHashMap<>();

  /**
   * @param described name, schema (Spark's, JSON), properties, partitioning, metadata columns, a key that is the same for the same rows,
   *     and the number of the function that answers for it
   */
  SparkTable(PythonProcess catalog, Map<?, ?> described) {
    this.python = described.get("target") == null ? catalog : catalog.other(described.get("target"));
    this.described = described;
    this.schema = (StructType) DataType.fromJson((String) described.get("schema"));
  }

  @Override
  public String name() {
    return (String) described.get("name");
  }

  /** Returns the version of the table that was loaded (seen.py), or null for a metadata table. */
  @Override
  public Object get() {
    return described.get("seen");
  }

  @Override
  @SuppressWarnings("deprecation") // columns() of the interface takes it, with the defaults in its metadata
  public StructType schema() {
    return schema;
  }

  @Override
  @SuppressWarnings("unchecked") // JSON of texts
  public Map<String, String> properties() {
    return (Map<String, String>) described.get("properties");
  }

  @Override
  public Transform[] partitioning() {
    Object[] given = ((List<?>) described.get("partitioning")).toArray();
    Transform[] made = new Transform[given.length];
    for (int i = 0; i < made.length; i++) {
      Object[] parts = ((List<?>) given[i]).toArray();
      String kind = (String) parts[0];
      NamedReference column = Expressions.column((String) parts[1]);
      if (kind.equals("identity")) { // of its own class, so DESCRIBE and SHOW CREATE TABLE show the column alone
        made[i] = Expressions.identity((String) parts[1]);
      } else {
        made[i] = parts[2] == null ? Expressions.apply(kind, new Expression[] {column})
                                   : Expressions.apply(kind, new Expression[] {Expressions.literal(parts[2]), column});
      }
    }
    return made;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ);
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    Object[] given = ((List<?>) described.get("metadata_columns")).toArray();
    MetadataColumn[] made = new MetadataColumn[given.length];
    for (int i = 0; i < made.length; i++) {
      Object[] parts = ((List<?>) given[i]).toArray();
      made[i] = new Column((String) parts[0], DataType.fromJson((String) parts[1]), ((Boolean) parts[2]).booleanValue(), (String) parts[3]);
    }
    return made;
  }

  /** Whether this is the table, or one of its metadata tables, of that name with its catalog, or of that uuid, which may be null. */
  boolean is(String name, String uuid) {
    return name.equals(described.get("name")) || (uuid != null && ((String) described.get("key")).startsWith(uuid + " "));
  }

  /** Returns how many tables have been loaded in this JVM. */
  static long loaded() {
    return LOADED.get();
  }

  /** Returns which of the JVM's tables this one is. */
  long number() {
    return number;
  }

  /** Returns the uuid of the table. */
  String uuid() {
    String key = (String) described.get("key");
    return key.substring(0, key.indexOf(' '));
  }

  /** Spark's own errors name a table so. */
  @Override
  public String toString() {
    return name();
  }

  /** Equal tables share what is cached. */
  @Override
  public boolean equals(Object other) {
    return other instanceof SparkTable && described.get("key").equals(((SparkTable) other).described.get("key"));
  }

  @Override
  public int hashCode() {
    return described.get("key").hashCode();
  }

  /** Returns the rows of some columns, made once for each list of them. */
  Dataset<?> rows(List<?> columns, Map<?, ?> options) {
    List<?> key = Arrays.asList(columns, options);
    synchronized (frames) {
      Object known = frames.get(key);
      if (known == null) {
        Map<Object, Object> request = PythonProcess.request("rows");
        request.put("columns", columns);
        request.put("options", options);
        known = PythonProcess.take(((Number) python.call(request)).longValue());
        frames.put(key, known);
      }
      return (Dataset<?>) known;
    }
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new Unread(this, options);
  }

  /** A scan that TableRelations replaces before it is planned. */
  public static class Unread implements ScanBuilder, Scan {
    private final SparkTable table;
    private final Map<?, ?> options;

    Unread(SparkTable table, CaseInsensitiveStringMap options) {
      this.table = table;
      this.options = options.asCaseSensitiveMap();
    }

    @Override
    public Scan build() {
      return this;
    }

    @Override
    public Batch toBatch() {
      throw new UnsupportedOperationException(PythonProcess.EXCLUDED);
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String folder) {
      return new TableStream(table.python, options, folder, null);
    }

    @Override
    @SuppressWarnings("deprecation") // as schema()
    public StructType readSchema() {
      return table.schema();
    }
  }

  /** A metadata column of tables. */
  public static class Column implements MetadataColumn {
    private final String name;
    private final DataType type;
    private final boolean nullable;
    private final String comment;

    Column(String name, DataType type, boolean nullable, String comment) {
      this.name = name;
      this.type = type;
      this.nullable = nullable;
      this.comment = comment;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public DataType dataType() {
      return type;
    }

    @Override
    public boolean isNullable() {
      return nullable;
    }

    @Override
    public String comment() {
      return comment;
    }
  }

  /** A table that rows can be written to. */
  public static class Writable extends SparkTable implements SupportsWrite, SupportsDelete, SupportsRowLevelOperations, TruncatableTable {
    Writable(PythonProcess catalog, Map<?, ?> described) {
      super(catalog, described);
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ, TableCapability.STREAMING_WRITE,
          TableCapability.BATCH_WRITE, TableCapability.V1_BATCH_WRITE, TableCapability.TRUNCATE, TableCapability.OVERWRITE_BY_FILTER,
          TableCapability.OVERWRITE_DYNAMIC, TableCapability.AUTOMATIC_SCHEMA_EVOLUTION);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      Map<Object, Object> request = PythonProcess.request("write");
      request.put("mode", "append");
      return new SparkWrites.Builder(python, request, false, info);
    }

    @Override
    public boolean canDeleteWhere(Predicate[] predicates) {
      Filter[] filters = PushedFilters.of(predicates);
      return filters.length == predicates.length && canDeleteWhere(filters);
    }

    @Override
    public void deleteWhere(Predicate[] predicates) {
      deleteWhere(SparkWrites.all(predicates));
    }

    @Override
    public boolean canDeleteWhere(Filter[] filters) {
      Map<Object, Object> request = PythonProcess.request("can select");
      request.put("filters", SparkWrites.json(filters));
      return Boolean.TRUE.equals(python.call(request));
    }

    @Override
    public void deleteWhere(Filter[] filters) {
      Map<Object, Object> request = PythonProcess.request("delete");
      request.put("filters", SparkWrites.json(filters));
      python.call(request);
    }

    @Override
    public boolean truncateTable() {
      deleteWhere(new Filter[0]);
      return true;
    }

    @Override
    public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
      for (String column : schema().fieldNames()) {
        if (Change.PLACE.contains(column.toLowerCase(Locale.ROOT))) {
          Map<Object, Object> request = PythonProcess.request("refuse change");
          request.put("column", column);
          python.call(request);
        }
      }
      return new Change(this, info);
    }

    /** Spark 4.2 and later have two defaults for this, of which Java takes neither. */
    public CustomTaskMetric[] reportDriverMetrics() {
      return new CustomTaskMetric[0];
    }
  }

  /** UPDATE, MERGE, and a DELETE that is more than a filter: Spark makes rows that say what becomes of which row. */
  public static class Change implements RowLevelOperationBuilder, SupportsDelta {
    /** The metadata columns that Spark looks for, each of which a column of the table may hide. */
    static final List<String> PLACE = Arrays.asList(new String[] {"_file", "_pos", "_row_id"});
    private final Writable table;
    private final RowLevelOperation.Command command;

    Change(Writable table, RowLevelOperationInfo info) {
      this.table = table;
      this.command = info.command();
    }

    @Override
    public RowLevelOperation build() {
      return this;
    }

    @Override
    public RowLevelOperation.Command command() {
      return command;
    }

    @Override
    public NamedReference[] rowId() {
      return new NamedReference[] {Expressions.column("_file"), Expressions.column("_pos")};
    }

    /** A new row in an old one's place keeps its id. */
    @Override
    public NamedReference[] requiredMetadataAttributes() {
      return command == RowLevelOperation.Command.DELETE ? new NamedReference[0] : new NamedReference[] {Expressions.column("_row_id")};
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return table.newScanBuilder(options);
    }

    @Override
    public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      Map<Object, Object> request = PythonProcess.request("change");
      request.put("command", command.toString());
      return new SparkWrites.DeltaBuilder(table.python, request, info);
    }
  }

  /** A table that is not there yet, or is to be replaced: its rows and itself come in one commit. */
  public static class Staged extends Writable implements StagedTable {
    private final Map<Object, Object> request;
    private boolean written;

    Staged(PythonProcess catalog, Map<Object, Object> request, Identifier name) {
      super(catalog, described(request, name));
      this.request = request;
    }

    private static Map<?, ?> described(Map<Object, Object> request, Identifier name) {
      Map<Object, Object> made = new LinkedHashMap<>();
      made.put("name", name.toString());
      made.put("schema", request.get("schema"));
      made.put("properties", Collections.emptyMap());
      made.put("partitioning", Collections.emptyList());
      made.put("metadata_columns", Collections.emptyList());
      made.put("key", "staged " + System.identityHashCode(made));
      return made;
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      written = true;
      return new SparkWrites.Builder(python, request, true, info);
    }

    @Override
    public void commitStagedChanges() {
      if (!written) {
        python.call(request);
      }
    }

    @Override
    public void abortStagedChanges() {}

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
      return new CustomTaskMetric[0];
    }
  }
}
