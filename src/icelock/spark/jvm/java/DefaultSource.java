package icelock;

import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriteBuilder;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.Platform;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The format "icelock" of a session whose statements know the catalogs: Spark looks for a class of this name before it looks for a Python
 * data source. Rows are read by the Python data source, and written by the table with its catalog, as df.writeTo does (SparkWrites); a
 * stream is that of the table too (TableStream), as of readStream.table and toTable. Of a catalog that the session does not have under its
 * name, all of it is the Python data source's.
 */
public class DefaultSource extends PythonDataSourceV2 {
  private static final String NAME = "icelock";
  private static final String JOB = "job"; // of icelock's own functions (job.py)
  private static final String REFUSED = "icelock.errors.PolicyError";
  private boolean reads;

  /** Called by Spark, which then tells the name of the format. */
  public DefaultSource() {}

  /** Called for reads only: a write has the columns of its rows. */
  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    reads = true;
    return super.inferSchema(options);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(properties);
    SparkTable table = reads || options.containsKey(JOB) ? null : known(options);
    return table instanceof SparkTable.Writable ? new Saved(this, schema, table) : new Named(this, schema);
  }

  /** Returns the table as {@link #named}, or null if there is none, or it has columns that Spark has no types for. */
  private static SparkTable known(CaseInsensitiveStringMap options) {
    try {
      return named(options);
    } catch (Exception e) {
      if (!(e instanceof NoSuchTableException) && !(e instanceof Failure && ((Failure) e).kind().equals(REFUSED))) {
        Platform.throwException(e);
      }
      return null; // Python says what is wrong, or writes the other columns
    }
  }

  /** Returns the table of a stream, as {@link #named}; one that has no streams is an error. */
  static SparkTable streamed(CaseInsensitiveStringMap options, TableCapability wanted) {
    SparkTable table = named(options);
    if (table != null && !table.capabilities().contains(wanted)) {
      throw new UnsupportedOperationException(
          table.name() + " has no streams: they are of tables and branches, not of their versions or metadata");
    }
    return table;
  }

  /** Returns the table that options name as its catalog has it, or null if the session has no such catalog of ours. */
  @SuppressWarnings("cast") // Janino does not cast what generic methods return
  static SparkTable named(CaseInsensitiveStringMap options) {
    String path = options.get("path");
    String name = path == null ? options.get("table") : path;
    if (name == null || (path != null && options.containsKey("table") && !path.equals(options.get("table")))) {
      return null; // Python says what is wrong
    }
    SparkSession session = (SparkSession) SparkSession.getActiveSession().get();
    List<?> parts;
    try {
      parts = CollectionConverters.asJava(session.sessionState().sqlParser().parseMultipartIdentifier(name));
    } catch (ParseException e) {
      return null; // Python says what is wrong
    }
    String catalog = (String) parts.get(0);
    if (!session.sessionState().catalogManager().isCatalogRegistered(catalog) || parts.size() < 3) {
      return null;
    }
    CatalogPlugin found = session.sessionState().catalogManager().catalog(catalog);
    if (!(found instanceof SparkCatalog)) {
      return null;
    }
    String[] texts = PythonProcess.texts(parts);
    Identifier identifier = Identifier.of((String[]) Arrays.copyOfRange(texts, 1, texts.length - 1), texts[texts.length - 1]);
    return (SparkTable) ((SparkCatalog) found).loadTable(identifier);
  }

  /** A table by its name. */
  public static class Named extends PythonTable {
    private final DefaultSource source;

    Named(DefaultSource source, StructType schema) {
      super(source, NAME, schema);
      this.source = source;
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new Scans(source, schema(), options);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new Writes(source, info);
    }
  }

  /** A table that its catalog writes, with the columns of the rows: Python finds the table's by their names. */
  public static class Saved extends Named {
    private final SparkTable table;

    Saved(DefaultSource source, StructType schema, SparkTable table) {
      super(source, schema);
      this.table = table;
    }

    @Override
    public Set<TableCapability> capabilities() {
      Set<TableCapability> made = new HashSet<>(super.capabilities());
      made.add(TableCapability.V1_BATCH_WRITE);
      return made;
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new Saves(table, info);
    }
  }

  /** Builds writes of a table with its catalog. */
  public static class Saves implements SupportsTruncate {
    private final SparkTable table;
    private final LogicalWriteInfo info;
    private boolean all;

    Saves(SparkTable table, LogicalWriteInfo info) {
      this.table = table;
      this.info = info;
    }

    @Override
    public WriteBuilder truncate() {
      all = true;
      return this;
    }

    @Override
    public Write build() {
      Map<Object, Object> request = PythonProcess.request("save");
      request.put("options", info.options().asCaseSensitiveMap());
      request.put("overwrite", Boolean.valueOf(all));
      return new SavedRows(table, request, info, all);
    }
  }

  /** Takes the rows of a batch as SparkWrites do, and those of a stream. */
  public static class SavedRows extends SparkWrites.Rows {
    private final SparkTable table;
    private final LogicalWriteInfo info;
    private final boolean all;

    SavedRows(SparkTable table, Map<Object, Object> request, LogicalWriteInfo info, boolean all) {
      super(table.python, request);
      this.table = table;
      this.info = info;
      this.all = all;
    }

    @Override
    public StreamingWrite toStreaming() {
      return streaming(table, info, all);
    }
  }

  /** Returns the write of a stream's batches. */
  static StreamingWrite streaming(SparkTable table, LogicalWriteInfo info, boolean all) {
    SparkWrites.Builder builder = (SparkWrites.Builder) ((SparkTable.Writable) table).newWriteBuilder(info);
    return (all ? builder.truncate() : builder).build().toStreaming();
  }

  /** Builds scans. */
  public static class Scans extends PythonScanBuilder {
    private final DefaultSource source;
    private final StructType schema;
    private final CaseInsensitiveStringMap options;

    Scans(DefaultSource source, StructType schema, CaseInsensitiveStringMap options) {
      super(source, NAME, schema, options);
      this.source = source;
      this.schema = schema;
      this.options = options;
    }

    @Override
    public Scan build() {
      return new Read(source, schema, options, pushedFilters());
    }
  }

  /** A scan, of a batch or a stream. */
  public static class Read extends PythonScan {
    private final CaseInsensitiveStringMap options;

    Read(DefaultSource source, StructType schema, CaseInsensitiveStringMap options, Filter[] filters) {
      super(source, NAME, schema, options, filters);
      this.options = options;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String folder) {
      SparkTable table = streamed(options, TableCapability.MICRO_BATCH_READ);
      return table == null ? super.toMicroBatchStream(folder)
                           : new TableStream(table.python, options.asCaseSensitiveMap(), folder, readSchema().json());
    }
  }

  /** Builds writes. */
  public static class Writes extends PythonWriteBuilder {
    private final DefaultSource source;
    private final LogicalWriteInfo info;
    private boolean all;

    Writes(DefaultSource source, LogicalWriteInfo info) {
      super(source, NAME, info);
      this.source = source;
      this.info = info;
    }

    @Override
    public WriteBuilder truncate() {
      all = true;
      return super.truncate();
    }

    @Override
    public Write build() {
      return new Written(source, info, all);
    }
  }

  /** A write, of a batch or a stream. */
  public static class Written extends PythonWrite {
    private final LogicalWriteInfo info;
    private final boolean all;

    Written(DefaultSource source, LogicalWriteInfo info, boolean all) {
      super(source, NAME, info, all);
      this.info = info;
      this.all = all;
    }

    @Override
    public StreamingWrite toStreaming() {
      SparkTable table = streamed(info.options(), TableCapability.STREAMING_WRITE);
      return table == null ? super.toStreaming() : streaming(table, info, all);
    }
  }
}
