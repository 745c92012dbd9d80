package icelock;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.unsafe.types.UTF8String;
import org.roaringbitmap.longlong.Roaring64NavigableMap;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractFunction1;

/**
 * The places of the rows that a DELETE finds: each task gathers its own in a bitmap for each file, so that no row goes to Python.
 *
 * What executors send has no keys and no values of rows, as what they send is not sealed.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"}) // Janino makes no bridge methods, and does not cast what generic methods return
public class DeletedRows extends AbstractFunction1 implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final ObjectMapper JSON = new ObjectMapper();
  private final int file;
  private final int position;

  /** Takes the columns of a row that have the file's path and the position in it. */
  DeletedRows(int file, int position) {
    this.file = file;
    this.position = position;
  }

  /** Runs the query; returns, as JSON, for each task the bitmaps of its files: by path, in the portable form of Roaring, as base64. */
  public static byte[] of(Dataset<?> rows, int file, int position) throws IOException {
    QueryExecution query = rows.queryExecution();
    Job job = new Job(query, new DeletedRows(file, position));
    Object[] tasks = (Object[]) SQLExecution$.MODULE$.withNewExecutionId(query, (Option) Option.apply("delete"), job);
    List<Object> found = new ArrayList<>();
    for (Object task : tasks) {
      found.add(JSON.readValue((byte[]) task, Object.class));
    }
    return JSON.writeValueAsBytes(found);
  }

  /** Returns the bitmaps of one task's rows. */
  @Override
  public Object apply(Object rows) {
    Map<Object, Object> found = new HashMap<>();
    UTF8String path = null;
    Roaring64NavigableMap positions = null;
    Iterator left = (Iterator) rows;
    while (left.hasNext()) {
      InternalRow row = (InternalRow) left.next();
      if (row.isNullAt(file) || row.isNullAt(position)) {
        throw new IllegalStateException("a row to delete has no place: this Spark version is not supported");
      }
      UTF8String at = row.getUTF8String(file);
      if (!at.equals(path)) { // rows of a file mostly follow each other
        path = at.copy();
        positions = (Roaring64NavigableMap) found.get(path);
        if (positions == null) {
          positions = new Roaring64NavigableMap();
          found.put(path, positions);
        }
      }
      positions.addLong(row.getLong(position));
    }
    return told(found);
  }

  private static byte[] told(Map<Object, Object> found) {
    try {
      Map<Object, Object> told = new LinkedHashMap<>();
      for (Object each : found.entrySet()) {
        Map.Entry<?, ?> entry = (Map.Entry<?, ?>) each;
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        ((Roaring64NavigableMap) entry.getValue()).serializePortable(new DataOutputStream(bytes));
        told.put(entry.getKey().toString(), bytes.toByteArray());
      }
      return JSON.writeValueAsBytes(told);
    } catch (IOException e) {
      throw new IllegalStateException("positions of deleted rows cannot be written", e);
    }
  }

  /** The Spark job. */
  public static class Job extends AbstractFunction0 {
    private final QueryExecution query;
    private final DeletedRows work;

    Job(QueryExecution query, DeletedRows work) {
      this.query = query;
      this.work = work;
    }

    @Override
    public Object apply() {
      RDD rows = query.toRdd();
      return query.sparkSession().sparkContext().runJob(rows, (Function1) work, (ClassTag) ClassTag$.MODULE$.apply(byte[].class));
    }
  }
}
