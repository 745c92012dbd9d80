package icelock;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
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
import scala.jdk.javaapi.CollectionConverters;

/**
 * The format "icelock" of a session whose statements know the catalogs: Spark looks for a class of this name before it looks for a Python
 * data source. Batches are the Python data source's, as ever. A stream is that of the table with its catalog (TableStream, SparkWrites), as
 * of readStream.table and toTable; of a catalog that the session does not have under its name, it is the Python data source's too.
 */
public class DefaultSource extends PythonDataSourceV2 {
  private static final String NAME = "icelock";

  /** Called by Spark, which then tells the name of the format. */
  public DefaultSource() {}

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Named(this, schema);
  }

  /** Returns the table that options name as its catalog has it, or null if the session has no such catalog of ours. */
  @SuppressWarnings("cast") // Janino does not cast what generic methods return
  static SparkTable named(CaseInsensitiveStringMap options, TableCapability wanted) {
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
    Table table =
        ((SparkCatalog) found).loadTable(Identifier.of((String[]) Arrays.copyOfRange(texts, 1, texts.length - 1), texts[texts.length - 1]));
    if (!table.capabilities().contains(wanted)) {
      throw new UnsupportedOperationException(name + " has no streams: they are of tables and branches, not of their versions or metadata");
    }
    return (SparkTable) table;
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
      SparkTable table = named(options, TableCapability.MICRO_BATCH_READ);
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
      SparkTable table = named(info.options(), TableCapability.STREAMING_WRITE);
      if (table == null) {
        return super.toStreaming();
      }
      SparkWrites.Builder builder = (SparkWrites.Builder) ((SparkTable.Writable) table).newWriteBuilder(info);
      return (all ? builder.truncate() : builder).build().toStreaming();
    }
  }
}
