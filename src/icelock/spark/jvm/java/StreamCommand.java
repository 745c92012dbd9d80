package icelock;

import java.util.Collections;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * Gives the rows of a stream's batch to Python, as the writes of statements do. They are those of the planned query, with its stateful
 * operators in it: a plan of rows that is planned again would have no state.
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // as in TableCommands
public class StreamCommand extends V2CommandExec {
  private static final long serialVersionUID = 1L;
  private final transient StreamingWrite write;
  private final SparkPlan query;

  /**
   * @param write of the batch
   * @param query its rows
   */
  public StreamCommand(StreamingWrite write, SparkPlan query) {
    this.write = write;
    this.query = query;
  }

  @Override
  public Seq run() {
    ((SparkWrites.Batches) write).write(session().internalCreateDataFrame(query.execute(), query.schema(), false));
    return Plans.none();
  }

  @Override
  public Seq output() {
    return Plans.none();
  }

  @Override
  public Seq children() {
    return Plans.seq(Collections.singletonList(query));
  }

  @Override
  public SparkPlan withNewChildrenInternal(IndexedSeq made) {
    return new StreamCommand(write, (SparkPlan) made.apply(0));
  }

  @Override
  public int productArity() {
    return 2;
  }

  @Override
  public Object productElement(int number) {
    return number == 0 ? write : query;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof StreamCommand;
  }
}
