package icelock;

import java.io.Serializable;
import java.util.Arrays;
import java.util.function.ToIntFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.codegen.LazilyGeneratedOrdering;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import scala.Option;
import scala.runtime.AbstractFunction0;

/**
 * Which of several ranges of an order a row is in, by the quantiles of a sample: as Spark's RangePartitioner, but the sample is the
 * caller's. Spark's own reads all columns of all rows for it.
 *
 * Plans do not show the bounds, which are values of rows.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"}) // Janino makes no bridge methods, and does not cast what generic methods return
public class RangeOf implements ToIntFunction, Serializable {
  private static final long serialVersionUID = 1L;
  private final LazilyGeneratedOrdering order;
  private final InternalRow[] bounds;

  RangeOf(LazilyGeneratedOrdering order, InternalRow[] bounds) {
    this.order = order;
    this.bounds = bounds;
  }

  /**
   * Runs the sample's query, and returns the number of a row's range, from 0, in the order.
   *
   * @param sample rows of the columns that the order compares, sorted by it in one partition
   * @param row a struct of the same columns of the row
   */
  public static Column column(Dataset<?> sample, int ranges, Column row) {
    QueryExecution query = sample.queryExecution();
    Sort sorted = (Sort) query.analyzed();
    InternalRow[] rows = (InternalRow[]) SQLExecution$.MODULE$.withNewExecutionId(query, (Option) Option.apply("ranges"), new Job(query));
    InternalRow[] bounds = new InternalRow[rows.length == 0 ? 0 : ranges - 1];
    for (int i = 0; i < bounds.length; i++) {
      int upTo = (int) ((long) rows.length * (i + 1) / ranges);
      bounds[i] = rows[Math.max(upTo - 1, 0)];
    }
    RangeOf found = new RangeOf(new LazilyGeneratedOrdering(sorted.order(), sorted.output()), bounds);
    return ExpressionUtils.column(new Invoke(Literal.fromObject(found, new ObjectType(ToIntFunction.class)), "applyAsInt",
        DataTypes.IntegerType, (scala.collection.immutable.Seq) Plans.seq(Arrays.asList(ExpressionUtils.expression(row))),
        (scala.collection.immutable.Seq) Plans.none(), true, false, true));
  }

  /** Returns how many bounds are before a row. */
  @Override
  public int applyAsInt(Object row) {
    int from = 0;
    int to = bounds.length;
    while (from < to) {
      int middle = (from + to) >>> 1;
      if (order.compare((InternalRow) row, bounds[middle]) > 0) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  }

  /** The Spark job. */
  public static class Job extends AbstractFunction0 {
    private final QueryExecution query;

    Job(QueryExecution query) {
      this.query = query;
    }

    @Override
    public Object apply() {
      return query.executedPlan().executeCollect();
    }
  }
}
