package icelock;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The files of a plan; each query asks Python for them, with the filters that Spark has for it. */
@SuppressWarnings({"cast", "rawtypes", "unchecked"}) // Janino makes no bridge methods, and does not cast what generic methods return
public class PlannedFiles implements FileIndex, Supplier {
  public static final String KEY = "icelock.key";
  public static final String DELETED = "icelock.deleted";

  /** Path, size, key and deleted positions; then those of the partition schema (equality.py, file_columns). */
  private static final int PLAN_COLUMNS = 4;
  private static final long BLOCK_SIZE = 128L << 20;
  private final StructType partitionSchema;
  private final Callbacks.Target plan;
  private final long size;
  private final long rows;
  private final String seen;

  /**
   * @param partitionSchema the columns whose values the plan has
   * @param plan returns the files that Spark's filters leave
   * @param size of all files, in bytes
   * @param rows of all files, or less than 0 if deletes leave fewer
   * @param seen which version of the table this is, for OwnRows
   */
  public PlannedFiles(StructType partitionSchema, Callbacks.Target plan, long size, long rows, String seen) {
    this.partitionSchema = partitionSchema;
    this.plan = plan;
    this.size = size;
    this.rows = rows;
    this.seen = seen;
  }

  /** Returns which version of the table this is. */
  @Override
  public Object get() {
    return seen;
  }

  /** Returns how many rows all files have by the manifests, or less than 0 if deletes leave fewer. */
  long rows() {
    return rows;
  }

  @Override
  public Seq rootPaths() {
    return Plans.none();
  }

  @Override
  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    List<Object> filters = new ArrayList<>();
    translate(partitionFilters, filters);
    translate(dataFilters, filters);
    byte[] files = plan.call(PushedFilters.json(filters));
    try {
      return Plans.seq(matching(decode(files), partitionFilters));
    } catch (IOException e) {
      throw new IllegalStateException("the plan of an icelock table cannot be read", e);
    }
  }

  /** Spark does not apply filters on the plan's columns again, and the plan does not understand all of them. */
  private List<?> matching(List<?> directories, Seq partitionFilters) {
    List<?> left = directories;
    for (Object filter : CollectionConverters.asJava(partitionFilters)) {
      if (MixedFilters.condition((Expression) filter) != null) {
        continue;
      }
      Expression bound = (Expression) ((Expression) filter).transform(new Replacing(new Binding(partitionSchema)));
      BasePredicate predicate = Predicate$.MODULE$.createInterpreted(bound);
      predicate.initialize(0);
      List<Object> kept = new ArrayList<>();
      for (Object directory : left) {
        if (predicate.eval(((PartitionDirectory) directory).values())) {
          kept.add(directory);
        }
      }
      left = kept;
    }
    return left;
  }

  @Override
  public String[] inputFiles() {
    List<String> found = new ArrayList<>();
    for (Object directory : CollectionConverters.asJava(listFiles(Plans.none(), Plans.none()))) {
      for (Object file : CollectionConverters.asJava(((PartitionDirectory) directory).files())) {
        found.add(((FileStatusWithMetadata) file).getPath().toUri().toString());
      }
    }
    return (String[]) found.toArray(new String[0]);
  }

  @Override
  public void refresh() {}

  @Override
  public long sizeInBytes() {
    return size;
  }

  @Override
  public StructType partitionSchema() {
    return partitionSchema;
  }

  @Override
  public String toString() {
    return "IcelockFiles";
  }

  private static void translate(Seq expressions, List<Object> filters) {
    for (Object each : CollectionConverters.asJava(expressions)) {
      String mixed = MixedFilters.condition((Expression) each);
      Object filter = mixed == null ? FunctionFilters.of((Expression) each) : PushedFilters.lists(mixed);
      if (filter != null) {
        filters.add(filter);
      }
    }
  }

  private List<?> decode(byte[] files) throws IOException {
    List<Object> directories = new ArrayList<>();
    BufferAllocator allocator = ArrowUtils$.MODULE$.rootAllocator().newChildAllocator("icelock plan", 0L, Long.MAX_VALUE);
    try {
      ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(files), allocator);
      try {
        while (reader.loadNextBatch()) {
          add(reader.getVectorSchemaRoot(), directories);
        }
      } finally {
        reader.close();
      }
    } finally {
      allocator.close();
    }
    return directories;
  }

  private void add(VectorSchemaRoot root, List<Object> directories) {
    ColumnVector[] columns = new ColumnVector[PLAN_COLUMNS + partitionSchema.length()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = new ArrowColumnVector(vector(root, i));
    }
    ColumnVector[] values = new ColumnVector[partitionSchema.length()];
    System.arraycopy(columns, PLAN_COLUMNS, values, 0, values.length);
    ColumnarBatch batch = new ColumnarBatch(values, root.getRowCount());
    for (int row = 0; row < root.getRowCount(); row++) {
      Path path = new Path(columns[0].getUTF8String(row).toString());
      FileStatus status = new FileStatus(columns[1].getLong(row), false, 1, BLOCK_SIZE, 0L, path);
      byte[] key = columns[2].isNullAt(row) ? new byte[0] : columns[2].getBinary(row);
      Map metadata = (Map) Map$.MODULE$.empty().updated(KEY, key);
      if (!columns[3].isNullAt(row)) {
        metadata = (Map) metadata.updated(DELETED, columns[3].getBinary(row));
      }
      Seq file = Plans.seq(Collections.singletonList(new FileStatusWithMetadata(status, metadata)));
      directories.add(new PartitionDirectory(new Values(batch.getRow(row), values), file));
    }
  }

  private static FieldVector vector(VectorSchemaRoot root, int column) {
    return (FieldVector) root.getFieldVectors().get(column);
  }

  /** Makes a filter's columns refer to a row of the plan's values. */
  public static class Binding implements Function<Object, Object> {
    private final StructType partitionSchema;

    public Binding(StructType partitionSchema) {
      this.partitionSchema = partitionSchema;
    }

    @Override
    public Object apply(Object expression) {
      if (!(expression instanceof AttributeReference)) {
        return null;
      }
      int index = partitionSchema.fieldIndex(((AttributeReference) expression).name());
      return new BoundReference(index, partitionSchema.fields()[index].dataType(), true);
    }
  }

  /** The plan's values of a file. Spark logs each file that a task opens with its values, which must not be seen there. */
  public static class Values extends GenericInternalRow {
    private static final long serialVersionUID = 1L;
    private final int count;

    Values(InternalRow row, ColumnVector[] columns) {
      this(values(row, columns));
    }

    private Values(Object[] values) {
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

    @Override
    public GenericInternalRow copy() {
      return this;
    }

    @Override
    public String toString() {
      return "[" + count + " values]";
    }
  }
}
