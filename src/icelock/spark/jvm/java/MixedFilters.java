package icelock;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileSourceStrategy$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Tells PlannedFiles of conditions that are of columns of the plan and of the files, such as day = '2026-01-01' or id = 1.
 *
 * Spark gives a FileIndex the conditions of either alone, and what of others follows for either. So this strategy writes such a condition
 * as text in a call of mayMatch, which refers to a column of the plan only: Spark takes it for one of these. It is added when the scan is
 * planned, after all rules of the optimizer, which could infer from it something about other tables.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"}) // Janino makes no bridge methods, and does not cast what generic methods return
public class MixedFilters extends SparkStrategy {
  private static final String FILES = "icelock.PlannedFiles";

  /** Returns what SparkSessionExtensions.injectPlannerStrategy takes. */
  public static Function1 builder() {
    return Replacing.builder(new MixedFilters());
  }

  /** Stands for a condition on the rows of a file, which is checked row by row elsewhere. */
  public static boolean mayMatch(Object ofPlan, Object condition) {
    return true;
  }

  /** Returns the condition that a call of mayMatch has, as JSON, or null for another expression. */
  static String condition(Expression filter) {
    if (!(filter instanceof StaticInvoke) || ((StaticInvoke) filter).staticObject() != MixedFilters.class) {
      return null;
    }
    return ((Literal) ((StaticInvoke) filter).arguments().apply(1)).value().toString();
  }

  @Override
  public Seq apply(LogicalPlan plan) {
    LogicalPlan changed = with(plan);
    return changed == null ? Plans.none() : FileSourceStrategy$.MODULE$.apply(changed);
  }

  /** Returns a scan with the calls, or null if there is none to make. */
  private static LogicalPlan with(LogicalPlan plan) {
    if (!(plan instanceof Filter) && !(plan instanceof Project)) {
      return null;
    }
    LogicalPlan child = (LogicalPlan) ((UnaryNode) plan).child();
    StructType ofPlan = child instanceof LogicalRelation ? ofPlan((LogicalRelation) child) : null;
    if (plan instanceof Filter && ofPlan != null) {
      return with((Filter) plan, ofPlan);
    }
    LogicalPlan changed = with(child);
    return changed == null ? null : (LogicalPlan) plan.withNewChildren((Seq) Plans.seq(Collections.singletonList(changed)));
  }

  private static LogicalPlan with(Filter filter, StructType ofPlan) {
    Expression found = filter.condition();
    for (Object part : CollectionConverters.asJava(FileSourceStrategy$.MODULE$.splitConjunctivePredicates(filter.condition()))) {
      Expression call = call((Expression) part, ofPlan);
      found = call == null ? found : new And(found, call);
    }
    return found == filter.condition() ? null : new Filter(found, (LogicalPlan) filter.child());
  }

  /** Returns the call for a condition, or null if it is not of both kinds of columns, or nothing is known of it. */
  private static Expression call(Expression condition, StructType ofPlan) {
    Attribute known = null;
    boolean ofFiles = false;
    for (Object each : CollectionConverters.asJava(condition.references())) {
      boolean planned = ofPlan.getFieldIndex(((Attribute) each).name()).isDefined();
      known = planned ? (Attribute) each : known;
      ofFiles = ofFiles || !planned;
    }
    Object written = known == null || !ofFiles ? null : FunctionFilters.of(condition);
    if (written == null) {
      return null;
    }
    Seq arguments = Plans.seq(
        Arrays.asList(new Object[] {known, new Literal(UTF8String.fromString(PushedFilters.text(written)), DataTypes.StringType)}));
    return new StaticInvoke(
        MixedFilters.class, DataTypes.BooleanType, "mayMatch", arguments, (Seq) Plans.none(), false, false, true, Option.empty());
  }

  /** Returns the columns of the plan, or null for the files of another table. */
  private static StructType ofPlan(LogicalRelation files) {
    if (!(files.relation() instanceof HadoopFsRelation)) {
      return null;
    }
    FileIndex index = ((HadoopFsRelation) files.relation()).location();
    return index.getClass().getName().equals(FILES) ? index.partitionSchema() : null;
  }
}
