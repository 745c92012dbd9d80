package icelock;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwrite;
import org.apache.spark.sql.connector.write.V1Write;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.streaming.sources.MicroBatchWrite;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.InsertableRelation;

/** What INSERT, UPDATE, MERGE and their like come to: rows for the Python process, as a DataFrame. */
public class SparkWrites {
  private SparkWrites() {}

  /** A request with the options that the statement gives. */
  private static Map<Object, Object> with(Map<Object, Object> request, LogicalWriteInfo info) {
    Map<Object, Object> made = new LinkedHashMap<>(request);
    made.put("options", info.options().asCaseSensitiveMap());
    return made;
  }

  /** Returns filters as a text of JSON. */
  static String json(Filter[] filters) {
    return new String(PushedFilters.json(Arrays.asList((Object[]) filters)), StandardCharsets.UTF_8);
  }

  /** Returns a filter for each predicate. */
  static Filter[] all(Predicate[] predicates) {
    Filter[] filters = PushedFilters.of(predicates);
    if (filters.length != predicates.length) {
      throw new IllegalStateException("a condition has no filter, and without it others would find more rows");
    }
    return filters;
  }

  /** Builds the write of an INSERT, or of a method of df.writeTo. */
  public static class Builder implements SupportsOverwrite, SupportsDynamicOverwrite {
    private final PythonProcess python;
    private final Map<Object, Object> request;
    /** Whether a new table gets the rows: what Spark does for it, an overwrite of all or an append, is the same then. */
    private final boolean created;

    Builder(PythonProcess python, Map<Object, Object> request, boolean created, LogicalWriteInfo info) {
      this.python = python;
      this.request = with(request, info);
      this.request.put("query", info.queryId());
      this.created = created;
    }

    @Override
    public WriteBuilder truncate() {
      return created ? this : mode("truncate");
    }

    @Override
    public boolean canOverwrite(Predicate[] predicates) {
      return PushedFilters.of(predicates).length == predicates.length;
    }

    @Override
    public WriteBuilder overwrite(Predicate[] predicates) {
      return overwrite(all(predicates));
    }

    @Override
    public WriteBuilder overwrite(Filter[] filters) {
      request.put("filters", json(filters));
      return created ? this : mode("overwrite");
    }

    @Override
    public WriteBuilder overwriteDynamicPartitions() {
      return mode("overwritePartitions");
    }

    private WriteBuilder mode(String mode) {
      request.put("mode", mode);
      return this;
    }

    @Override
    public Write build() {
      return new Rows(python, request);
    }
  }

  /** Takes the rows in the driver, as a DataFrame. */
  public static class Rows implements V1Write, InsertableRelation {
    private final PythonProcess python;
    private final Map<Object, Object> request;

    Rows(PythonProcess python, Map<Object, Object> request) {
      this.python = python;
      this.request = request;
    }

    @Override
    public String description() {
      return "IcelockWrite";
    }

    @Override
    public InsertableRelation toInsertableRelation() {
      return this;
    }

    @Override
    public void insert(Dataset<Row> rows, boolean overwrite) {
      python.call(request, rows);
    }

    @Override
    public StreamingWrite toStreaming() {
      return new Batches(python, request);
    }
  }

  /** Takes the rows of each batch of a stream, from the node that TableCommands plans (StreamCommand). */
  public static class Batches implements StreamingWrite {
    private final PythonProcess python;
    private final Map<Object, Object> request;
    private MicroBatchWrite batch;
    private Dataset<?> rows;

    Batches(PythonProcess python, Map<Object, Object> request) {
      this.python = python;
      this.request = new LinkedHashMap<>(request);
      this.request.put("do", "write batch");
    }

    /** Takes Spark's wrapper, which knows the number of the batch. */
    Batches of(MicroBatchWrite wrapper) {
      batch = wrapper;
      return this;
    }

    /** Writes the rows of the batch. */
    void write(Dataset<?> given) {
      rows = given;
      batch.commit(new WriterCommitMessage[0]);
    }

    /** Spark's wrapper passes the number on; there are no messages, as Python writes and commits. */
    @Override
    public void commit(long epoch, WriterCommitMessage[] messages) {
      request.put("epoch", Long.valueOf(epoch));
      request.put("offsets", offsets(epoch));
      request.put("before", offsets(epoch - 1));
      boolean known = Boolean.TRUE.equals(python.call(request, rows));
      if (known) {
        rows.queryExecution().toRdd().count(); // its rows still move the watermark, and make state
      }
    }

    private String offsets(long epoch) {
      return StreamOffsets.of(rows.sparkSession(), (String) request.get("query"), epoch);
    }

    @Override
    public void abort(long epoch, WriterCommitMessage[] messages) {}

    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
      throw new UnsupportedOperationException(PythonProcess.EXCLUDED);
    }
  }

  /** Builds the write of an UPDATE, a MERGE, or a DELETE that is more than a filter. */
  public static class DeltaBuilder implements DeltaWriteBuilder {
    private final PythonProcess python;
    private final Map<Object, Object> request;

    DeltaBuilder(PythonProcess python, Map<Object, Object> request, LogicalWriteInfo info) {
      this.python = python;
      this.request = with(request, info);
    }

    @Override
    public DeltaWrite build() {
      return new Delta(python, request);
    }
  }

  /** Carries the request to the planner strategy (TableCommands), which gives it the rows. */
  public static class Delta implements DeltaWrite {
    private final PythonProcess python;
    private final Map<Object, Object> request;

    Delta(PythonProcess python, Map<Object, Object> request) {
      this.python = python;
      this.request = request;
    }

    /** Returns DELETE, UPDATE or MERGE. */
    String command() {
      return (String) request.get("command");
    }

    /** Returns the write of rows in which the columns have these meanings. */
    Rows rows(Map<Object, Object> columns) {
      Map<Object, Object> whole = new LinkedHashMap<>(request);
      whole.putAll(columns);
      return new Rows(python, whole);
    }

    @Override
    public String description() {
      return "IcelockChange";
    }

    @Override
    public DeltaBatchWrite toBatch() {
      throw new UnsupportedOperationException(PythonProcess.EXCLUDED);
    }
  }
}
