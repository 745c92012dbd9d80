package icelock;

import java.io.ByteArrayInputStream;
import java.io.DataOutput;
import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.function.Supplier;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.io.WritableUtils;
import org.apache.parquet.crypto.DecryptionPropertiesFactory;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.hadoop.ParquetInputFormat;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.FileFormat$;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.IsNull;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Or;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * Spark's own Parquet scan over the files of an icelock plan. Compiled in a running session by native.py; raw types, as Janino knows no
 * generics.
 *
 * A file's key travels with the split that reads the file, beside its path, in no option, no broadcast and no setting, and is at hand to Parquet
 * only while the file is opened.
 */
public class NativeScan {
  private static final String KEY = "icelock.key";
  private static final String DELETED = "icelock.deleted";
  private static final String OURS_ALONE = "icelock ";
  private static final int PLAN_COLUMNS = 4;
  private static final int BY_FOOTER = -2;
  /** A bitmap of no positions: its number of parts, as 64 bits. */
  private static final byte[] NOTHING = new byte[8];
  private static final String[][] OURS = {
    {"spark.sql.parquet.fieldId.read.enabled", "true"},
    // A file without ids is an error, not nulls.
    {"spark.sql.parquet.fieldId.read.ignoreMissing", "false"},
    // Without these some defaults of columns would be nulls.
    {"spark.sql.parquet.enableVectorizedReader", "true"},
    {"spark.sql.parquet.enableNestedColumnVectorizedReader", "true"},
    // A struct whose fields are all newer than the file is not null.
    {"spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing", "false"},
    // Iceberg knows one calendar, and no text in binary columns.
    {"spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED"},
    {"spark.sql.parquet.int96RebaseModeInRead", "CORRECTED"},
    {"spark.sql.parquet.int96TimestampConversion", "false"},
    {"spark.sql.parquet.int96AsTimestamp", "true"},
    {"spark.sql.parquet.binaryAsString", "false"},
    {"spark.sql.parquet.inferTimestampNTZ.enabled", "true"}
  };
  private static final java.util.Map READING = new java.util.WeakHashMap();

  /**
   * Returns the rows of planned files.
   *
   * @param user the session that the rows are for
   * @param data columns in the files, with field ids and defaults, in JSON
   * @param shown the same columns as users see them
   * @param partition columns whose values the plan has
   * @param pushable columns that filters may be pushed for, in dotted form, with a NUL between them
   * @param floats those of them that are floating-point numbers
   * @param plan gives, for Spark's filters, the files in an Arrow stream: path, size, key, bitmap of deleted positions, and a column for
   *     each of partition
   * @param count of the files
   * @param size of the files together, in bytes
   * @param rows of all files, or less than 0 if deletes leave fewer
   * @param seen which version of the table this is, for OwnRows
   * @param deletes whether some file has deleted positions
   * @param columns what to return, quoted and with a NUL between them, or null for all
   */
  public static Dataset open(
      SparkSession user,
      String data,
      String shown,
      String partition,
      String pushable,
      String floats,
      Callbacks.Target plan,
      int count,
      long size,
      long rows,
      String seen,
      boolean deletes,
      String columns) {
    StructType dataSchema = (StructType) DataType.fromJson(data);
    StructType partitionSchema = (StructType) DataType.fromJson(partition);
    StructType output = and((StructType) DataType.fromJson(shown), partitionSchema);
    java.util.HashMap options = new java.util.HashMap();
    // The user's session may say otherwise; then a tampered file would be missing rows.
    options.put("ignoreCorruptFiles", "false");
    options.put("ignoreMissingFiles", "false");
    HadoopFsRelation relation =
        new HadoopFsRelation(
            new PlannedFiles(partitionSchema, plan, size, rows, seen),
            partitionSchema,
            dataSchema,
            Option.empty(),
            new KeyedParquet(dataSchema, names(pushable), names(floats), deletes),
            (Map) scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(options)),
            reading(user));
    // The ids are not for users to see; KeyedParquet has them.
    Seq attributes = DataTypeUtils$.MODULE$.toAttributes(output);
    LogicalPlan files = LogicalRelation$.MODULE$.apply(relation, attributes, Option.empty(), false, Option.empty());
    // Spark does not say of a scan that it has one partition, and would exchange rows where none need be.
    Dataset found = Dataset.ofRows(user, count == 1 && onePartition(user, size) ? new Repartition(1, false, files) : files);
    if (columns == null) {
      return found;
    }
    String[] names = columns.split("\\x00");
    Column[] wanted = new Column[names.length];
    for (int i = 0; i < wanted.length; i++) {
      wanted[i] = functions.col(names[i]);
    }
    return (Dataset) found.select(wrap(wanted));
  }

  /** Whether Spark would read a file as one partition, however many cores there are. */
  private static boolean onePartition(SparkSession user, long size) {
    SQLConf conf = user.sessionState().conf();
    return size <= Math.min(conf.filesOpenCostInBytes(), conf.filesMaxPartitionBytes());
  }

  /** Returns a session with the user's settings for files that reads by field id; it is made again when the settings change. */
  private static SparkSession reading(SparkSession user) {
    java.util.Map settings = new java.util.TreeMap();
    java.util.Iterator all = CollectionConverters.asJava(user.conf().getAll()).entrySet().iterator();
    while (all.hasNext()) {
      java.util.Map.Entry entry = (java.util.Map.Entry) all.next();
      String name = (String) entry.getKey();
      if (name.startsWith("spark.sql.files.") || name.startsWith("spark.sql.parquet.") || name.equals("spark.sql.caseSensitive")) {
        settings.put(name, entry.getValue());
      }
    }
    synchronized (READING) {
      Object[] known = (Object[]) READING.get(user);
      if (known == null || !known[0].equals(settings)) {
        SparkSession made = (SparkSession) user.newSession();
        java.util.Iterator each = settings.entrySet().iterator();
        while (each.hasNext()) {
          java.util.Map.Entry entry = (java.util.Map.Entry) each.next();
          if (made.conf().isModifiable((String) entry.getKey())) {
            made.conf().set((String) entry.getKey(), (String) entry.getValue());
          }
        }
        for (int i = 0; i < OURS.length; i++) {
          made.conf().set(OURS[i][0], OURS[i][1]);
        }
        known = new Object[] {settings, made};
        READING.put(user, known);
      }
      return (SparkSession) known[1];
    }
  }

  private static StructType and(StructType first, StructType second) {
    StructType both = first;
    StructField[] more = second.fields();
    for (int i = 0; i < more.length; i++) {
      both = both.add(more[i]);
    }
    return both;
  }

  private static Set names(String text) {
    return new HashSet(Arrays.asList(text.split("\\x00")));
  }

  private static Seq wrap(Column[] columns) {
    return CollectionConverters.asScala(Arrays.asList(columns)).toSeq();
  }

  /** The files of a plan; asked again for each query, with the filters that Spark has for it. */
  public static class PlannedFiles implements FileIndex, Supplier {
    private final StructType partitionSchema;
    private final Callbacks.Target plan;
    private final long size;
    private final long rows;
    private final String seen;

    public PlannedFiles(StructType partitionSchema, Callbacks.Target plan, long size, long rows, String seen) {
      this.partitionSchema = partitionSchema;
      this.plan = plan;
      this.size = size;
      this.rows = rows;
      this.seen = seen;
    }

    /** Which version of the table this is. */
    public Object get() {
      return seen;
    }

    /** How many rows all files have by the manifests, or less than 0 if deletes leave fewer. */
    long rows() {
      return rows;
    }

    public Seq rootPaths() {
      return CollectionConverters.asScala(new ArrayList()).toSeq();
    }

    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
      List filters = new ArrayList();
      translate(partitionFilters, filters);
      translate(dataFilters, filters);
      byte[] files = plan.call(PushedFilters.json(filters));
      try {
        return CollectionConverters.asScala(matching(decode(files, partitionSchema), partitionFilters)).toSeq();
      } catch (IOException e) {
        throw new IllegalStateException("the plan of an icelock table cannot be read", e);
      }
    }

    /** Spark does not look at filters on what the plan knows again, and not all of them have a form that the plan understands. */
    private List matching(List directories, Seq partitionFilters) {
      List left = directories;
      java.util.Iterator filters = CollectionConverters.asJava(partitionFilters).iterator();
      while (filters.hasNext()) {
        Expression bound = (Expression) ((Expression) filters.next()).transform(new OfPlan(partitionSchema));
        BasePredicate predicate = Predicate$.MODULE$.createInterpreted(bound);
        predicate.initialize(0);
        List kept = new ArrayList();
        java.util.Iterator each = left.iterator();
        while (each.hasNext()) {
          PartitionDirectory directory = (PartitionDirectory) each.next();
          if (predicate.eval(directory.values())) {
            kept.add(directory);
          }
        }
        left = kept;
      }
      return left;
    }

    public String[] inputFiles() {
      List found = new ArrayList();
      java.util.Iterator directories = CollectionConverters.asJava(listFiles(empty(), empty())).iterator();
      while (directories.hasNext()) {
        java.util.Iterator files = CollectionConverters.asJava(((PartitionDirectory) directories.next()).files()).iterator();
        while (files.hasNext()) {
          found.add(((FileStatusWithMetadata) files.next()).getPath().toUri().toString());
        }
      }
      return (String[]) found.toArray(new String[0]);
    }

    public void refresh() {}

    public long sizeInBytes() {
      return size;
    }

    public StructType partitionSchema() {
      return partitionSchema;
    }

    public String toString() {
      return "IcelockFiles";
    }

    private static Seq empty() {
      return CollectionConverters.asScala(new ArrayList()).toSeq();
    }

    private static void translate(Seq expressions, List filters) {
      java.util.Iterator each = CollectionConverters.asJava(expressions).iterator();
      while (each.hasNext()) {
        Option filter = DataSourceStrategy$.MODULE$.translateFilter((Expression) each.next(), true);
        if (filter.isDefined()) {
          filters.add(filter.get());
        }
      }
    }
  }

  /** Makes columns of a filter those of a row of the plan's values. */
  public static class OfPlan extends AbstractPartialFunction implements Serializable {
    private final StructType partitionSchema;

    public OfPlan(StructType partitionSchema) {
      this.partitionSchema = partitionSchema;
    }

    public boolean isDefinedAt(Object expression) {
      return expression instanceof AttributeReference;
    }

    public Object applyOrElse(Object expression, Function1 otherwise) {
      if (!isDefinedAt(expression)) {
        return otherwise.apply(expression);
      }
      int index = partitionSchema.fieldIndex(((AttributeReference) expression).name());
      return new BoundReference(index, partitionSchema.fields()[index].dataType(), true);
    }
  }

  private static List decode(byte[] files, StructType partitionSchema) throws IOException {
    List directories = new ArrayList();
    BufferAllocator allocator = ArrowUtils$.MODULE$.rootAllocator().newChildAllocator("icelock plan", 0L, Long.MAX_VALUE);
    try {
      ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(files), allocator);
      try {
        while (reader.loadNextBatch()) {
          add(reader.getVectorSchemaRoot(), partitionSchema.length(), directories);
        }
      } finally {
        reader.close();
      }
    } finally {
      allocator.close();
    }
    return directories;
  }

  private static void add(VectorSchemaRoot root, int partitionColumns, List directories) {
    ColumnVector[] columns = new ColumnVector[PLAN_COLUMNS + partitionColumns];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = new ArrowColumnVector((FieldVector) root.getFieldVectors().get(i));
    }
    ColumnVector[] values = new ColumnVector[partitionColumns];
    System.arraycopy(columns, PLAN_COLUMNS, values, 0, partitionColumns);
    ColumnarBatch batch = new ColumnarBatch(values, root.getRowCount());
    for (int row = 0; row < root.getRowCount(); row++) {
      Path path = new Path(columns[0].getUTF8String(row).toString());
      FileStatus status = new FileStatus(columns[1].getLong(row), false, 1, 134217728L, 0L, path);
      byte[] key = columns[2].isNullAt(row) ? new byte[0] : columns[2].getBinary(row);
      Map metadata = (Map) Map$.MODULE$.empty().updated(KEY, key);
      if (!columns[3].isNullAt(row)) {
        metadata = (Map) metadata.updated(DELETED, columns[3].getBinary(row));
      }
      List one = new ArrayList(1);
      one.add(new FileStatusWithMetadata(status, metadata));
      directories.add(new PartitionDirectory(new Constants(batch.getRow(row), values), CollectionConverters.asScala(one).toSeq()));
    }
  }

  /** A file's values of the plan, partition values among them; Spark's log names each file that a task opens, with them. */
  public static class Constants extends GenericInternalRow {
    private final int count;

    Constants(InternalRow row, ColumnVector[] columns) {
      this(values(row, columns));
    }

    private Constants(Object[] values) {
      super(values);
      count = values.length;
    }

    private static Object[] values(InternalRow row, ColumnVector[] columns) {
      Object[] found = new Object[columns.length];
      for (int i = 0; i < found.length; i++) {
        found[i] = row.isNullAt(i) ? null : InternalRow.copyValue(row.get(i, columns[i].dataType()));
      }
      return found;
    }

    public GenericInternalRow copy() {
      return this;
    }

    public String toString() {
      return "[" + count + " values]";
    }

    public String mkString(String separator) {
      return toString();
    }

    public String mkString(String start, String separator, String end) {
      return toString();
    }
  }

  /** Spark's Parquet format with a key for each file. */
  public static class KeyedParquet extends ParquetFileFormat {
    private final StructType data;
    private final Set pushable;
    private final Set floats;
    private final boolean deletes;

    public KeyedParquet(StructType data, Set pushable, Set floats, boolean deletes) {
      this.data = data;
      this.pushable = pushable;
      this.floats = floats;
      this.deletes = deletes;
    }

    public String shortName() {
      return "icelock";
    }

    public String toString() {
      return "icelock";
    }

    public Function1 buildReaderWithPartitionValues(
        org.apache.spark.sql.SparkSession session,
        StructType dataSchema,
        StructType partitionSchema,
        StructType required,
        Seq filters,
        Map options,
        Configuration conf) {
      conf.set(DecryptionPropertiesFactory.CRYPTO_FACTORY_CLASS_PROPERTY_NAME, KeyOfThread.class.getName());
      LocalFiles.install(conf);
      StructType asked = (StructType) ids(required, data);
      int index = Arrays.asList(asked.fieldNames()).indexOf(ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME());
      StructType whole = null;
      if (deletes && options.get(FileFormat$.MODULE$.OPTION_RETURNING_BATCH()).contains("true")) {
        index = BY_FOOTER;
        // Row groups are skipped, as in Java Iceberg, but no pages: rows of a group have positions one after the other.
        conf.setBoolean(ParquetInputFormat.COLUMN_INDEX_FILTERING_ENABLED, false);
      } else if (deletes && index < 0) {
        index = asked.length();
        asked = asked.add(ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME(), DataTypes.LongType);
        whole = and(asked, partitionSchema);
      }
      return new KeyedReader(
          super.buildReaderWithPartitionValues(session, dataSchema, partitionSchema, asked, safe(filters), options, new Settings(conf)),
          index,
          whole);
    }

    /** Columns with deletes are of a class of ours, which generated code must not take for Spark's. */
    public Option vectorTypes(StructType required, StructType partition, SQLConf conf) {
      return deletes ? Option.empty() : super.vectorTypes(required, partition, conf);
    }

    /** Filters go by name into files whose columns may have had other names: only those that always meant the same column are pushed. */
    private Seq safe(Seq filters) {
      List kept = new ArrayList();
      java.util.Iterator each = CollectionConverters.asJava(filters).iterator();
      while (each.hasNext()) {
        Filter filter = (Filter) each.next();
        if (pushable.containsAll(Arrays.asList(filter.references())) && exact(filter)) {
          kept.add(filter);
        }
      }
      return CollectionConverters.asScala(kept).toSeq();
    }

    /**
     * Whether Parquet means by a filter what Spark means. To Spark NaN is the greatest number and -0.0 is 0.0; bounds in files leave NaN out, and
     * dictionaries tell the zeros apart.
     */
    private boolean exact(Filter filter) {
      boolean compares = false;
      String[] references = filter.references();
      for (int i = 0; i < references.length; i++) {
        compares = compares || floats.contains(references[i]);
      }
      if (!compares || filter instanceof IsNull || filter instanceof IsNotNull) {
        return true;
      }
      if (filter instanceof And) {
        return exact(((And) filter).left()) && exact(((And) filter).right());
      }
      if (filter instanceof Or) {
        return exact(((Or) filter).left()) && exact(((Or) filter).right());
      }
      if (filter instanceof EqualTo) {
        return ordinary(((EqualTo) filter).value());
      }
      if (filter instanceof LessThan) {
        return ordinary(((LessThan) filter).value());
      }
      return filter instanceof LessThanOrEqual && ordinary(((LessThanOrEqual) filter).value());
    }

    private static boolean ordinary(Object value) {
      double number = value instanceof Number ? ((Number) value).doubleValue() : 0.0;
      return number == number && number != 0.0;
    }
  }

  /**
   * Gives nested fields their metadata back, field ids among it, which Spark's nested column pruning drops; and gives all fields names that no
   * file has. Spark finds a file's columns by id, but then looks up the type to read one as by the file's name for it, which may now be the name
   * of another column.
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
            found[i] =
                new StructField(OURS_ALONE + j, ids(fields[i].dataType(), known[j].dataType()), fields[i].nullable(), known[j].metadata());
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
   * A configuration that goes to executors without what it says of where each setting is from: Hadoop compresses a text for each of a thousand,
   * which is a tenth of the time of a query of one row.
   */
  public static class Settings extends Configuration {
    public Settings(Configuration other) {
      super(other);
    }

    public void write(DataOutput out) throws IOException {
      WritableUtils.writeVInt(out, size());
      java.util.Iterator each = iterator();
      while (each.hasNext()) {
        java.util.Map.Entry entry = (java.util.Map.Entry) each.next();
        Text.writeString(out, (String) entry.getKey());
        Text.writeString(out, (String) entry.getValue());
        WritableUtils.writeCompressedStringArray(out, null);
      }
    }
  }

  /** Opens a file with its key, has what was opened looked at, and leaves out its deleted rows. */
  public static class KeyedReader extends AbstractFunction1 implements Serializable {
    private final Function1 reader;
    private final int index;
    private final StructType whole;

    /** Index is of the column with a row's position, or BY_FOOTER; whole are all columns if that one is to be taken out, else null. */
    public KeyedReader(Function1 reader, int index, StructType whole) {
      this.reader = reader;
      this.index = index;
      this.whole = whole;
    }

    public Object apply(Object file) {
      PartitionedFile part = (PartitionedFile) file;
      String path = part.toPath().toString();
      byte[] key = (byte[]) part.otherConstantMetadataColumnValues().apply(KEY);
      QuietLogs.set();
      KeyOfThread.set(path, key);
      try {
        Iterator rows = (Iterator) reader.apply(file);
        if (key.length > 0) {
          OpenedFile.check(rows, key, path);
        }
        return new ReadErrors.Told(live(rows, part.otherConstantMetadataColumnValues().get(DELETED)), path, key.length > 0, KeyOfThread.conf());
      } catch (Throwable e) {
        throw ReadErrors.thrown(ReadErrors.of(e, path, key.length > 0, KeyOfThread.conf()));
      } finally {
        KeyOfThread.unset();
      }
    }

    private Iterator live(Iterator rows, Option deleted) {
      if (deleted.isEmpty() && whole == null) {
        return rows;
      }
      if (index == BY_FOOTER) {
        return LiveRows.byFooter(rows, (byte[]) deleted.get());
      }
      return LiveRows.byColumn(rows, deleted.isEmpty() ? NOTHING : (byte[]) deleted.get(), index, whole);
    }
  }

  /** Tells Parquet the key of the file that this thread opens; a file that is not told of is refused. */
  public static class KeyOfThread implements DecryptionPropertiesFactory {
    private static final ThreadLocal CURRENT = new ThreadLocal();

    static void set(String path, byte[] key) {
      CURRENT.set(new Object[] {path, key, null});
    }

    /** The configuration that the file was opened with, as far as Parquet asked. */
    static Configuration conf() {
      Object[] current = (Object[]) CURRENT.get();
      return current == null ? null : (Configuration) current[2];
    }

    static void unset() {
      CURRENT.remove();
    }

    public FileDecryptionProperties getFileDecryptionProperties(Configuration conf, Path path) throws ParquetCryptoRuntimeException {
      Object[] current = (Object[]) CURRENT.get();
      if (current == null || !path.toString().equals(current[0])) {
        throw new ParquetCryptoRuntimeException("icelock has no key for " + path + ": it is not the file that this task was given");
      }
      current[2] = conf;
      byte[] keyMetadata = (byte[]) current[1];
      if (keyMetadata.length == 0) {
        return null; // a plain file, which the plan let through by the catalog's policy
      }
      try {
        BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(keyMetadata, 1, keyMetadata.length - 1, null);
        byte[] key = bytes(decoder.readBytes(null));
        FileDecryptionProperties.Builder builder = FileDecryptionProperties.builder().withFooterKey(key);
        if (decoder.readIndex() == 1) {
          builder.withAADPrefix(bytes(decoder.readBytes(null)));
        }
        return builder.build();
      } catch (IOException e) {
        throw new ParquetCryptoRuntimeException("the key metadata of " + path + " cannot be read", e);
      }
    }

    private static byte[] bytes(ByteBuffer buffer) {
      byte[] found = new byte[buffer.remaining()];
      buffer.get(found);
      return found;
    }
  }

  /** Returns whether a bit is set in a row of a table of bits, whose rows have width bytes; bit 0 is the lowest of the first byte. */
  public static Column among(byte[] bits, int width, Column row, Column bit) {
    return functions.udf(new Among(bits, width), DataTypes.BooleanType).apply(wrap(new Column[] {row, bit}));
  }

  /** See among. */
  public static class Among implements UDF2 {
    private final byte[] bits;
    private final int width;

    public Among(byte[] bits, int width) {
      this.bits = bits;
      this.width = width;
    }

    public Object call(Object row, Object bit) {
      int number = ((Integer) bit).intValue();
      int at = ((Integer) row).intValue() * width + (number >> 3);
      return (bits[at] >> (number & 7) & 1) == 1 ? Boolean.TRUE : Boolean.FALSE;
    }
  }

  /** Returns UUIDs of 16 bytes as text in lower case. */
  public static Column uuidText(Column column) {
    return functions.udf(new UuidText(), DataTypes.StringType).apply(wrap(new Column[] {column}));
  }

  /** See uuidText. */
  public static class UuidText implements UDF1 {
    public Object call(Object value) {
      if (value == null) {
        return null;
      }
      ByteBuffer bytes = ByteBuffer.wrap((byte[]) value);
      return new UUID(bytes.getLong(), bytes.getLong()).toString();
    }
  }
}
