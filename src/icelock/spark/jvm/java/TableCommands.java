package icelock;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionSet;
import org.apache.spark.sql.catalyst.expressions.ExpressionSet$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.CreateTableAsSelect;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RepartitionOperation;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.AppendDataExecV1;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy;
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2;
import org.apache.spark.sql.execution.streaming.sources.MicroBatchWrite;
import scala.Function0;
import scala.Function1;
import scala.Option;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/** Plans the commands whose rows Spark would give to writers on executors: they go to Python, as those of an INSERT do. */
@SuppressWarnings({"cast", "rawtypes", "unchecked"}) // Janino makes no bridge methods, and does not cast what generic methods return
public class TableCommands extends SparkStrategy {
  /** Nodes with one child that have no more rows than it. */
  private static final Class<?>[] NO_MORE_ROWS = {
      Project.class, Filter.class, Sort.class, Aggregate.class, Window.class, RepartitionOperation.class};
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
  @SuppressWarnings("deprecation") // Spark's own node for the batches of streams
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
    } else if (plan instanceof CreateTable) {
      checkNew(((CreateTable) plan).name());
    } else if (plan instanceof CreateTableAsSelect) {
      checkNew(((CreateTableAsSelect) plan).name());
    } else if (plan instanceof WriteToDataSourceV2 && ((WriteToDataSourceV2) plan).batchWrite() instanceof MicroBatchWrite) {
      WriteToDataSourceV2 command = (WriteToDataSourceV2) plan;
      MicroBatchWrite batch = (MicroBatchWrite) command.batchWrite();
      if (batch.writeSupport() instanceof SparkWrites.Batches) {
        StreamingWrite write = ((SparkWrites.Batches) batch.writeSupport()).of(batch);
        made.add(new StreamCommand(write, planLater(command.query())));
      }
    } else if (plan instanceof V2WriteCommand && ((V2WriteCommand) plan).table() instanceof DataSourceV2Relation) {
      DataSourceV2Relation relation = (DataSourceV2Relation) ((V2WriteCommand) plan).table();
      return Plans.isOurs(relation.table(), "icelock") ? refreshing(relation, new DataSourceV2Strategy(session).apply(plan)) : Plans.none();
    }
    return Plans.seq(made);
  }

  /** Throws for a name that stands for a part of a table: Spark would say that it is there, and IF NOT EXISTS do nothing. */
  private static void checkNew(LogicalPlan name) {
    if (name instanceof ResolvedIdentifier && ((ResolvedIdentifier) name).catalog() instanceof SparkCatalog) {
      ((SparkCatalog) ((ResolvedIdentifier) name).catalog()).checkNew(((ResolvedIdentifier) name).identifier());
    }
  }

  /** Returns Spark's plans of a write to the data source, which after it read the table again in place of the data source's relation. */
  private Seq refreshing(DataSourceV2Relation relation, Seq plans) {
    String name = (String) relation.options().getOrDefault("path", relation.options().get("table"));
    List<Object> made = new ArrayList<>();
    for (Object plan : CollectionConverters.asJava(plans)) {
      Object[] parts = Plans.parts((Product) plan);
      for (int i = 0; i < parts.length; i++) {
        parts[i] = name != null && parts[i] instanceof Function0 ? new CachedTables.Refresh(session, name, null) : parts[i];
      }
      made.add(((TreeNode) plan).makeCopy(parts));
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
    columns.put("source_rows", sourceRows(change));
    columns.put("filters", new String(PushedFilters.json(filters(change)), StandardCharsets.UTF_8));
    return ((SparkWrites.Delta) change.write().get()).rows(columns);
  }

  /** Returns how many rows a statement has at most beside those of its table, null if Spark does not know: those of a MERGE's source. */
  private static Object sourceRows(WriteDelta change) {
    if (!isMerge(change)) {
      return Long.valueOf(0L);
    }
    LogicalPlan rows = below(below(change.query(), MergeRows.class), Join.class);
    if (!(rows instanceof Join)) {
      return null;
    }
    LogicalPlan left = ((Join) rows).left();
    LogicalPlan right = ((Join) rows).right();
    boolean isLeft = hasPlaces(left);
    if (isLeft == hasPlaces(right)) {
      return null; // the source has such a column too, or the optimizer has left no join with the table
    }
    return mostRows(isLeft ? right : left);
  }

  /** Returns how many rows a plan has at most, null if it is not known. Those of our files are, which Spark does not count. */
  private static Long mostRows(LogicalPlan plan) {
    Option most = plan.maxRows();
    if (most.isDefined()) {
      return Long.valueOf(((Number) most.get()).longValue());
    }
    if (plan instanceof Union) {
      long all = 0;
      for (Object part : CollectionConverters.asJava(plan.children())) {
        Long some = mostRows((LogicalPlan) part);
        if (some == null) {
          return null;
        }
        all += some.longValue();
      }
      return Long.valueOf(all);
    }
    for (Class<?> kind : NO_MORE_ROWS) {
      if (kind.isInstance(plan)) {
        return mostRows((LogicalPlan) plan.children().head());
      }
    }
    long rows = CountedRows.Counted.rows(plan);
    return rows < 0 ? null : Long.valueOf(rows);
  }

  /** Whether rows have places in files, as those of the table have, whose columns the optimizer may have given other ids. */
  private static boolean hasPlaces(LogicalPlan rows) {
    for (Object column : CollectionConverters.asJava(rows.output())) {
      if (((Attribute) column).name().equals("_pos")) {
        return true;
      }
    }
    return false;
  }

  /** Returns filters of the table's own columns that hold for all of its rows that the statement looks at. */
  private static List<?> filters(WriteDelta change) {
    AttributeSet columns = ((DataSourceV2Relation) change.originalTable()).outputSet();
    // The condition of an UPDATE or a DELETE has no other columns, but the optimizer may have given them other ids.
    boolean own = !isMerge(change);
    List<Object> found = new ArrayList<>();
    for (Object condition : conditions(change)) {
      if (own || ((Expression) condition).references().subsetOf(columns)) {
        Option filter = PushedFilters.of((Expression) condition);
        if (filter.isDefined()) {
          found.add(filter.get());
        }
      }
    }
    return found;
  }

  /**
   * Returns what holds for the rows of the table that a statement looks at, each with those of the source that it goes with.
   *
   * A MERGE looks at rows that its condition may match, unless it has a clause for those without a source row. What follows from the
   * condition and from what Spark found to hold for the source's rows comes to that, as Spark gives it to the scan that Java's Iceberg has.
   */
  private static List<Object> conditions(WriteDelta change) {
    List<Object> held = new ArrayList<>();
    if (!isMerge(change)) {
      addParts(change.condition(), held);
      return held;
    }
    LogicalPlan rows = below(change.query(), MergeRows.class);
    if (!(rows instanceof MergeRows) || !((MergeRows) rows).notMatchedBySourceInstructions().isEmpty()) {
      return held;
    }
    addParts(change.condition(), held);
    rows = below(rows, Join.class);
    if (rows instanceof Join) {
      held.addAll(CollectionConverters.asJava(((Join) rows).left().constraints().toSeq()));
      held.addAll(CollectionConverters.asJava(((Join) rows).right().constraints().toSeq()));
    }
    ExpressionSet known = ExpressionSet$.MODULE$.apply((Seq) Plans.seq(held));
    held.addAll(CollectionConverters.asJava(rows.inferAdditionalConstraints(known).toSeq()));
    held.addAll(
        CollectionConverters.asJava(rows.constructIsNotNullConstraints(known, ((LogicalPlan) change.originalTable()).output()).toSeq()));
    return held;
  }

  private static boolean isMerge(WriteDelta change) {
    return ((SparkWrites.Delta) change.write().get()).command().equals("MERGE");
  }

  /** Adds a condition, or the parts of a conjunction. */
  private static void addParts(Expression condition, List<Object> parts) {
    if (condition instanceof And) {
      addParts(((And) condition).left(), parts);
      addParts(((And) condition).right(), parts);
    } else {
      parts.add(condition);
    }
  }

  /** Returns the first node of a kind, or the last one of those with one child. */
  private static LogicalPlan below(LogicalPlan plan, Class<?> kind) {
    LogicalPlan node = plan;
    while (!kind.isInstance(node) && node.children().size() == 1) {
      node = (LogicalPlan) node.children().head();
    }
    return node;
  }

  private static List<?> ordinals(Object projection) {
    return new ArrayList<Object>(CollectionConverters.asJava((scala.collection.Seq) ((ProjectingInternalRow) projection).colOrdinals()));
  }

  private Object command(DataSourceV2Relation relation, LogicalPlan query, SparkWrites.Rows write) {
    Table table = relation.table();
    if (table instanceof RowLevelOperationTable) {
      table = (Table) ((RowLevelOperationTable) table).table();
    }
    SparkTable changed = (SparkTable) table;
    return new AppendDataExecV1((SupportsWrite) table, query, new CachedTables.Refresh(session, changed.name(), changed.uuid()), write);
  }
}
