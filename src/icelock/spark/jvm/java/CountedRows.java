package icelock;

import java.util.Arrays;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Answers count(*) of whole tables without deletes from the manifests' row counts, as Java Iceberg does (SparkScanBuilder.pushAggregation).
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino makes no bridge methods
public class CountedRows extends Rule {
  /** Returns what SparkSessionExtensions.injectOptimizerRule takes. */
  public static Function1 builder() {
    return Replacing.builder(new CountedRows());
  }

  @Override
  public TreeNode apply(TreeNode plan) {
    return plan.transform(new Replacing(new Counted()));
  }

  /** Replaces such an aggregate by its row. */
  public static class Counted implements Function<Object, Object> {
    @Override
    public Object apply(Object node) {
      long counted = node instanceof Aggregate && counts((Aggregate) node) ? rows(((Aggregate) node).child()) : -1;
      if (counted < 0) {
        return null;
      }
      Aggregate aggregate = (Aggregate) node;
      Object[] values = new Object[aggregate.aggregateExpressions().size()];
      Arrays.fill(values, Long.valueOf(counted));
      Object[] row = new Object[] {new GenericInternalRow(values)};
      return new LocalRelation(aggregate.output(), (Seq) Plans.seq(Arrays.asList(row)), false, Option.empty());
    }

    /** Whether an aggregate has no groups, and only counts of all rows. */
    private static boolean counts(Aggregate aggregate) {
      if (!aggregate.groupingExpressions().isEmpty() || aggregate.aggregateExpressions().isEmpty()) {
        return false;
      }
      for (Object found : CollectionConverters.asJava(aggregate.aggregateExpressions())) {
        if (!(found instanceof Alias) || !counts(((Alias) found).child())) {
          return false;
        }
      }
      return true;
    }

    private static boolean counts(Expression expression) {
      if (!(expression instanceof AggregateExpression)) {
        return false;
      }
      AggregateExpression aggregate = (AggregateExpression) expression;
      if (aggregate.isDistinct() || aggregate.filter().isDefined() || !(aggregate.aggregateFunction() instanceof Count)) {
        return false;
      }
      for (Object value : CollectionConverters.asJava(((Count) aggregate.aggregateFunction()).children())) {
        if (!(value instanceof Literal) || ((Literal) value).value() == null) {
          return false;
        }
      }
      return true;
    }

    /** Returns how many rows a plan has if it reads whole files of ours, else less than 0. */
    static long rows(LogicalPlan plan) {
      if (plan instanceof Project) {
        return rows(((Project) plan).child());
      }
      if (plan instanceof Repartition) {
        return rows(((Repartition) plan).child());
      }
      if (plan instanceof Union) {
        long all = 0;
        for (Object part : CollectionConverters.asJava(plan.children())) {
          long some = rows((LogicalPlan) part);
          if (some < 0) {
            return -1;
          }
          all += some;
        }
        return all;
      }
      // What a stream counts, it adds to what it counted before.
      if (!(plan instanceof LogicalRelation) || plan.isStreaming() || !(((LogicalRelation) plan).relation() instanceof HadoopFsRelation)) {
        return -1;
      }
      Object files = ((HadoopFsRelation) ((LogicalRelation) plan).relation()).location();
      return files instanceof PlannedFiles ? ((PlannedFiles) files).rows() : -1;
    }
  }
}
