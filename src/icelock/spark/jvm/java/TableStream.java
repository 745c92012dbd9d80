package icelock;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.CompositeReadLimit;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxFiles;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$;
import scala.Option;

/**
 * A table as a streaming query reads it: offsets are Python's (streams.py), and so are the rows of a batch, which TableRelations puts in
 * the place of the relation. Nothing of it is read by tasks of Spark's streams, so there are no partitions.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"}) // Scala's options, and Janino does not cast what generic methods return
public class TableStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  /** Where a stream began is kept beside the checkpoint's other files, as Java does: a first batch that runs again begins there. */
  private static final String BEGINNING = "offsets/0";
  private final PythonProcess python;
  private final Map<?, ?> opened;
  private final Place initial;
  private Object last;
  private String shown;
  private LogicalPlan rows;

  /**
   * Opens the stream for a query; its files of this source are below a folder of the checkpoint.
   *
   * @param columns that the query was defined with, as Spark's JSON, where that was not together with the table; or null
   */
  TableStream(PythonProcess table, Map<?, ?> options, String folder, String columns) {
    String known = null;
    Path path = new Path(folder, BEGINNING);
    SparkSession session = (SparkSession) SparkSession.getActiveSession().get();
    CheckpointFileManager files = CheckpointFileManager$.MODULE$.create(new Path(folder), session.sessionState().newHadoopConf());
    try {
      if (files.exists(path)) {
        known = read(files, path);
      }
      Map<Object, Object> request = PythonProcess.request("open stream");
      request.put("options", options);
      request.put("initial", known);
      request.put("columns", columns);
      opened = (Map<?, ?>) table.call(request);
      python = table.other(opened.get("target"));
      initial = new Place((String) opened.get("initial"));
      if (known == null) {
        write(files, path, initial.json());
      }
    } catch (IOException e) {
      throw new IllegalStateException("the checkpoint's file " + path + " cannot be read or written", e);
    }
  }

  private static String read(CheckpointFileManager files, Path path) throws IOException {
    FSDataInputStream in = files.open(path);
    try {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    } finally {
      in.close();
    }
  }

  private static void write(CheckpointFileManager files, Path path, String text) throws IOException {
    files.mkdirs(path.getParent());
    CheckpointFileManager.CancellableFSDataOutputStream out = files.createAtomic(path, false);
    try {
      out.write(text.getBytes(StandardCharsets.UTF_8));
      out.close();
    } catch (IOException e) {
      out.cancel();
      throw e;
    }
  }

  @Override
  public Offset initialOffset() {
    return initial;
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new Place(json);
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks for the offset behind another one");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    Map<Object, Object> request = PythonProcess.request("latest");
    request.put("start", start.json());
    request.put("last", last);
    limit(limit, request);
    Object found = python.call(request);
    return found == null ? null : new Place((String) found);
  }

  private static void limit(ReadLimit limit, Map<Object, Object> request) {
    if (limit instanceof CompositeReadLimit) {
      for (ReadLimit each : ((CompositeReadLimit) limit).getReadLimits()) {
        limit(each, request);
      }
    } else if (limit instanceof ReadMaxFiles) {
      request.put("files", Integer.valueOf(((ReadMaxFiles) limit).maxFiles()));
    } else if (limit instanceof ReadMaxRows) {
      request.put("rows", Long.valueOf(((ReadMaxRows) limit).maxRows()));
    }
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    Number files = (Number) opened.get("files");
    Number rows = (Number) opened.get("rows");
    if (files == null) {
      return rows == null ? ReadLimit.allAvailable() : ReadLimit.maxRows(rows.longValue());
    }
    ReadLimit most = ReadLimit.maxFiles(files.intValue());
    return rows == null ? most : ReadLimit.compositeLimit(new ReadLimit[] {most, ReadLimit.maxRows(rows.longValue())});
  }

  /** The query ends with what is there now. */
  @Override
  public void prepareForTriggerAvailableNow() {
    last = python.call(PythonProcess.request("head"));
  }

  /** Returns the rows of a batch, as a plan of this stream; Spark plans a batch several times. */
  synchronized LogicalPlan rows(List<?> columns, Offset start, Offset end) {
    String asked = Arrays.asList(columns, start.json(), end.json()).toString();
    if (!asked.equals(shown)) {
      Map<Object, Object> request = PythonProcess.request("batch");
      request.put("columns", columns);
      request.put("start", start.json());
      request.put("end", end.json());
      Dataset<?> made = (Dataset<?>) PythonProcess.take(((Number) python.call(request)).longValue());
      rows = (LogicalPlan) made.queryExecution().analyzed().transform(new Replacing(new Streaming(this)));
      shown = asked;
    }
    return rows;
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    throw new UnsupportedOperationException(PythonProcess.EXCLUDED);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    throw new UnsupportedOperationException(PythonProcess.EXCLUDED);
  }

  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {}

  /** How Spark's progress names the source. */
  @Override
  public String toString() {
    return "IcelockStream";
  }

  /** An offset, whose text Python makes and reads. */
  public static class Place extends Offset {
    private final String json;

    Place(String json) {
      this.json = json;
    }

    @Override
    public String json() {
      return json;
    }
  }

  /** Marks relations of files as a part of a stream: stateful operators are planned for these only, and the stream counts their rows. */
  public static class Streaming implements Function<Object, Object> {
    private final TableStream stream;

    Streaming(TableStream stream) {
      this.stream = stream;
    }

    @Override
    public Object apply(Object node) {
      if (!(node instanceof LogicalRelation)) {
        return null;
      }
      LogicalRelation files = (LogicalRelation) node;
      return files.copy(files.relation(), files.output(), files.catalogTable(), true, (Option) Option.apply(stream));
    }
  }
}
