package icelock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.optimizer.EliminateResolvedHint$;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.types.DataTypes;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Puts the plan of icelock.spark.read in the place of each relation of a SparkTable, and of each batch of its streams, before filters are
 * pushed into scans. The new plan has attributes of its own, so that two relations of one table stay two, and gives its columns by the
 * relation's.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"}) // Janino makes no bridge methods, and does not cast what generic methods return
public class TableRelations extends Rule {
  /** Returns what SparkSessionExtensions.injectOptimizerRule takes. */
  public static Function1 builder() {
    return Replacing.builder(new TableRelations());
  }

  @Override
  public TreeNode apply(TreeNode plan) {
    return asksTable(plan) ? plan : plan.transform(new Replacing(new Relations((LogicalPlan) plan)));
  }

  /**
   * Whether a command is about the table, whose rows nobody asks for: a DELETE that is a filter, a new CHECK (by name: not all Sparks have
   * it).
   */
  private static boolean asksTable(TreeNode plan) {
    return plan instanceof DeleteFromTable || plan.getClass().getSimpleName().equals("AddCheckConstraint");
  }

  /** Returns the rows of relations of tables, and null for other nodes. */
  public static class Relations implements Function<Object, Object> {
    private final LogicalPlan whole;

    Relations(LogicalPlan whole) {
      this.whole = whole;
    }

    @Override
    public Object apply(Object node) {
      if (node instanceof StreamingDataSourceV2ScanRelation) {
        return batch((StreamingDataSourceV2ScanRelation) node);
      }
      if (!(node instanceof DataSourceV2Relation)) {
        return null;
      }
      DataSourceV2Relation relation = (DataSourceV2Relation) node;
      Table table = relation.table();
      boolean changed = table instanceof RowLevelOperationTable; // of which the live rows count
      if (changed) {
        table = (Table) ((RowLevelOperationTable) table).table();
      }
      if (!(table instanceof SparkTable)) {
        return null;
      }
      List<Object> wanted = new ArrayList<>();
      List<Object> names = new ArrayList<>();
      for (Object column : CollectionConverters.asJava(relation.output())) {
        if (!isDeleted((Attribute) column) || (!changed && isUsed(whole, (Attribute) column))) {
          wanted.add(column);
          names.add(((Attribute) column).name());
        }
      }
      Map<Object, Object> options = new HashMap<Object, Object>(relation.options().asCaseSensitiveMap());
      LogicalPlan read = ((SparkTable) table).rows(names, options).queryExecution().analyzed();
      // Spark takes hints, such as that to broadcast deleted rows, out of the statement's own plan before this rule.
      LogicalPlan rows = named((LogicalPlan) EliminateResolvedHint$.MODULE$.apply(read), wanted);
      return wanted.size() == relation.output().size() ? rows : live(rows, CollectionConverters.asJava(relation.output()));
    }

    /** Returns the rows of a batch of a stream. */
    private static LogicalPlan batch(StreamingDataSourceV2ScanRelation relation) {
      if (!(relation.stream() instanceof TableStream) || relation.startOffset().isEmpty()) {
        return null;
      }
      List<?> wanted = CollectionConverters.asJava(relation.output());
      List<Object> names = new ArrayList<>();
      for (Object column : wanted) {
        names.add(((Attribute) column).name());
      }
      TableStream stream = (TableStream) relation.stream();
      return named(stream.rows(names, (Offset) relation.startOffset().get(), (Offset) relation.endOffset().get()), wanted);
    }

    /** Whether a column is the metadata column that shows deleted rows. Spark adds all metadata columns where one is named. */
    private static boolean isDeleted(Attribute column) {
      return column.name().equals("_deleted") && column.metadata().contains("__metadata_col");
    }

    private static boolean isUsed(LogicalPlan node, Attribute column) {
      if (!(node instanceof DataSourceV2Relation) && node.references().contains(column)) {
        return true;
      }
      for (Object child : CollectionConverters.asJava(node.children())) {
        if (isUsed((LogicalPlan) child, column)) {
          return true;
        }
      }
      return false;
    }

    /** Returns live rows with the columns of a relation, of which they lack the one that says that they are live. */
    private static LogicalPlan live(LogicalPlan rows, List<?> wanted) {
      List<Object> columns = new ArrayList<>();
      for (Object column : wanted) {
        boolean missing = isDeleted((Attribute) column);
        columns.add(missing ? alias(new Literal(Boolean.FALSE, DataTypes.BooleanType), (Attribute) column) : column);
      }
      return new Project((Seq) Plans.seq(columns), rows);
    }
  }

  /** Returns the rows with a relation's attributes. */
  static LogicalPlan named(LogicalPlan rows, List<?> wanted) {
    List<?> given = CollectionConverters.asJava(rows.output());
    Map<Object, Object> names = new HashMap<>();
    for (int i = 0; i < given.size(); i++) {
      names.put(((Attribute) given.get(i)).exprId(), wanted.get(i));
    }
    Renaming renaming = new Renaming(names);
    // From below, so that a name is known before it is used.
    LogicalPlan renamed = (LogicalPlan) rows.transformUp(new Replacing(new Nodes(renaming)));
    List<?> now = CollectionConverters.asJava(renamed.output());
    List<Object> columns = new ArrayList<>();
    boolean same = true;
    for (int i = 0; i < now.size(); i++) {
      Attribute column = (Attribute) wanted.get(i);
      boolean there = ((Attribute) now.get(i)).exprId().equals(column.exprId());
      same = same && there;
      columns.add(there ? now.get(i) : alias((Attribute) now.get(i), column));
    }
    return same ? renamed : new Project((Seq) Plans.seq(columns), renamed);
  }

  static Alias alias(Expression column, Attribute name) {
    return new Alias(column, name.name(), name.exprId(), name.qualifier(), Option.empty(), (Seq) Plans.none());
  }

  /** Gives relations of files new attributes, or the wanted ones, and other nodes what those are called now. */
  public static class Nodes implements Function<Object, Object> {
    private final Renaming renaming;

    Nodes(Renaming renaming) {
      this.renaming = renaming;
    }

    @Override
    public Object apply(Object node) {
      if (!(node instanceof LogicalRelation)) {
        return ((LogicalPlan) node).transformExpressions(new Replacing(renaming));
      }
      LogicalRelation files = (LogicalRelation) node;
      List<Object> output = new ArrayList<>();
      for (Object attribute : CollectionConverters.asJava(files.output())) {
        output.add(renaming.of((AttributeReference) attribute));
      }
      return files.copy(files.relation(), (Seq) Plans.seq(output), files.catalogTable(), files.isStreaming(), files.stream());
    }
  }

  /** Renames attributes, where they are made by an alias and where they are used. */
  public static class Renaming implements Function<Object, Object> {
    /** By the id of an attribute in the rows; the values become those of the relation. */
    private final Map<Object, Object> names;

    Renaming(Map<Object, Object> names) {
      this.names = names;
    }

    /** Returns the name of what a leaf gives. */
    Attribute of(AttributeReference attribute) {
      if (!names.containsKey(attribute.exprId())) {
        names.put(attribute.exprId(), attribute.newInstance());
      }
      return (Attribute) names.get(attribute.exprId());
    }

    @Override
    public Object apply(Object expression) {
      if (expression instanceof AttributeReference) {
        return names.get(((AttributeReference) expression).exprId());
      }
      if (!(expression instanceof Alias)) {
        return null;
      }
      Alias alias = (Alias) expression;
      if (!names.containsKey(alias.exprId())) {
        names.put(alias.exprId(), alias.newInstance().toAttribute());
      }
      Attribute column = (Attribute) names.get(alias.exprId());
      return new Alias(
          alias.child(), column.name(), column.exprId(), column.qualifier(), alias.explicitMetadata(), alias.nonInheritableMetadataKeys());
    }
  }
}
