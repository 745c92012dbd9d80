package icelock;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.v2.AppendDataExecV1;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** Plans the commands whose rows Spark would give to writers on executors: they go to Python, as those of an INSERT do. */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino makes no bridge methods
public class TableCommands extends SparkStrategy {
  private final SparkSession session;

  public TableCommands(SparkSession session) {
    this.session = session;
  }

  /** Returns what SparkSessionExtensions.injectPlannerStrategy takes. */
  public static Function1 builder() {
    return new AbstractFunction1() {
      @Override
      public Object apply(Object session) {
        return new TableCommands((SparkSession) session);
      }
    };
  }

  @Override
  public Seq apply(LogicalPlan plan) {
    List<Object> made = new ArrayList<>();
    if (plan instanceof WriteDelta && ours(((WriteDelta) plan).write(), SparkWrites.Delta.class)) {
      WriteDelta change = (WriteDelta) plan;
      made.add(command((DataSourceV2Relation) change.originalTable(), change.query(), rows(change)));
    } else if (plan instanceof OverwritePartitionsDynamic && ours(((OverwritePartitionsDynamic) plan).write(), SparkWrites.Rows.class)) {
      OverwritePartitionsDynamic overwrite = (OverwritePartitionsDynamic) plan;
      // By position: Spark 4.3 has two methods table(), of which Janino takes neither.
      DataSourceV2Relation relation = (DataSourceV2Relation) overwrite.productElement(0);
      made.add(command(relation, overwrite.query(), (SparkWrites.Rows) overwrite.write().get()));
    }
    return Plans.seq(made);
  }

  private static boolean ours(Option write, Class kind) {
    return write.isDefined() && kind.isInstance(write.get());
  }

  /** Which columns of the rows are the operation's, the new row's and the old row's place. */
  private static SparkWrites.Rows rows(WriteDelta change) {
    Map<Object, Object> columns = new LinkedHashMap<>();
    Option row = change.projections().rowProjection();
    Option metadata = change.projections().metadataProjection();
    columns.put("row", row.isDefined() ? ordinals(row.get()) : null);
    columns.put("names", row.isDefined() ? Arrays.asList((Object[]) ((ProjectingInternalRow) row.get()).schema().fieldNames()) : null);
    columns.put("place", ordinals(change.projections().rowIdProjection()));
    columns.put("metadata", metadata.isDefined() ? ordinals(metadata.get()) : null);
    columns.put("filters", new String(PushedFilters.json(filters(change)), StandardCharsets.UTF_8));
    return ((SparkWrites.Delta) change.write().get()).rows(columns);
  }

  /** Returns filters of the table's own columns that hold for all rows that a DELETE or UPDATE changes; a MERGE has none. */
  private static List<?> filters(WriteDelta change) {
    List<Object> found = new ArrayList<>();
    if (((SparkWrites.Delta) change.write().get()).command().equals("MERGE")) {
      return found;
    }
    List<Object> left = new ArrayList<>();
    left.add(change.condition());
    while (!left.isEmpty()) {
      Expression condition = (Expression) left.remove(left.size() - 1);
      if (condition instanceof And) {
        left.add(((And) condition).left());
        left.add(((And) condition).right());
      } else if (condition.references().subsetOf(((DataSourceV2Relation) change.originalTable()).outputSet())) {
        Option filter = DataSourceStrategy$.MODULE$.translateFilter(condition, true);
        if (filter.isDefined()) {
          found.add(filter.get());
        }
      }
    }
    return found;
  }

  private static List<?> ordinals(Object projection) {
    return new ArrayList<Object>(CollectionConverters.asJava((scala.collection.Seq) ((ProjectingInternalRow) projection).colOrdinals()));
  }

  private Object command(DataSourceV2Relation relation, LogicalPlan query, SparkWrites.Rows write) {
    Table table = relation.table();
    if (table instanceof RowLevelOperationTable) {
      table = (Table) ((RowLevelOperationTable) table).table();
    }
    return new AppendDataExecV1((SupportsWrite) table, query, new Refresh(session, relation), write);
  }

  /** Lets queries that are cached read the table again. */
  public static class Refresh extends AbstractFunction0 {
    private final SparkSession session;
    private final LogicalPlan relation;

    Refresh(SparkSession session, LogicalPlan relation) {
      this.session = session;
      this.relation = relation;
    }

    @Override
    public Object apply() {
      session.sharedState().cacheManager().recacheByPlan(session, relation);
      return BoxedUnit.UNIT;
    }
  }
}
