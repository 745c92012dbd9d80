package icelock;

import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.collection.immutable.Map;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * Which versions of icelock tables a plan reads, wherever it does: in joins, unions, subqueries, views and cached plans.
 *
 * Each scan says it itself (seen.py): those of Spark's own reader by their FileIndex, those of the data source in the pickle of their Python object. This
 * optimizer rule puts what the rows of an overwrite come from into the options of the write, since Spark shows a data source no plan. Compiled in a
 * running session by jvm.py; raw types, as Janino knows no generics.
 */
public class OwnRows extends Rule {
  private static final String OPTION = "icelock-rows-read";
  private static final String NATIVE = "icelock.NativeScan$PlannedFiles";
  private static final String BEGIN = "icelock seen[";
  private static final String END = "]icelock seen";
  private final String format;

  public OwnRows(String format) {
    this.format = format;
  }

  /** Returns what SparkSessionExtensions.injectOptimizerRule takes; fails where this Spark is another than expected. */
  public static Function1 builder(final String format) throws ReflectiveOperationException {
    field(PythonTable.class, "ds");
    field(PythonDataSourceV2.class, "dataSourceInPython");
    return new AbstractFunction1() {
      public Object apply(Object session) {
        return new OwnRows(format);
      }
    };
  }

  /** Returns what the scans of a plan say, with a newline between them; "?" and a table's name for a scan that does not say. */
  public static String seen(LogicalPlan plan, String format) {
    Set found = new LinkedHashSet();
    walk(plan, format, found);
    return String.join("\n", (Set) found);
  }

  public TreeNode apply(TreeNode plan) {
    return plan.transform(new Told(format));
  }

  /** Writes the option into an overwrite that does not have it yet. */
  public static class Told extends AbstractPartialFunction {
    private final String format;

    public Told(String format) {
      this.format = format;
    }

    public boolean isDefinedAt(Object node) {
      return ours(node) && !options(node).contains(OPTION) && !target(node).options().containsKey(OPTION);
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) {
        return otherwise.apply(node);
      }
      TreeNode command = (TreeNode) node;
      DataSourceV2Relation relation = target(node);
      String seen = seen(((V2WriteCommand) node).query(), format);
      // Spark wants the options of both to be equal, or those of one to be none.
      boolean ofCommand = !options(node).isEmpty() || relation.options().isEmpty();
      boolean ofRelation = !relation.options().isEmpty();
      Object[] parts = elements(command);
      for (int i = 0; i < parts.length; i++) {
        if (parts[i] == options(node) && ofCommand) {
          parts[i] = ((Map) parts[i]).updated(OPTION, seen);
        } else if (parts[i] == relation && ofRelation) {
          parts[i] = with(relation, seen);
        }
      }
      return command.makeCopy(parts);
    }

    private static DataSourceV2Relation with(DataSourceV2Relation relation, String seen) {
      java.util.HashMap options = new java.util.HashMap(relation.options().asCaseSensitiveMap());
      options.put(OPTION, seen);
      Object[] parts = elements(relation);
      for (int i = 0; i < parts.length; i++) {
        if (parts[i] == relation.options()) {
          parts[i] = new CaseInsensitiveStringMap(options);
        }
      }
      return (DataSourceV2Relation) ((TreeNode) relation).makeCopy(parts);
    }

    private static Object[] elements(TreeNode node) {
      Object[] parts = new Object[node.productArity()];
      for (int i = 0; i < parts.length; i++) {
        parts[i] = node.productElement(i);
      }
      return parts;
    }

    private static DataSourceV2Relation target(Object node) {
      return (DataSourceV2Relation) ((V2WriteCommand) node).table();
    }

    private boolean ours(Object node) {
      if (!(node instanceof OverwriteByExpression) && !(node instanceof OverwritePartitionsDynamic)) {
        return false;
      }
      Object target = ((V2WriteCommand) node).table();
      return target instanceof DataSourceV2Relation && isOurs(((DataSourceV2Relation) target).table(), format);
    }

    private static Map options(Object node) {
      return node instanceof OverwriteByExpression
          ? ((OverwriteByExpression) node).writeOptions()
          : ((OverwritePartitionsDynamic) node).writeOptions();
    }
  }

  private static void walk(LogicalPlan plan, String format, Set found) {
    if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
      Object files = ((HadoopFsRelation) ((LogicalRelation) plan).relation()).location();
      if (files.getClass().getName().equals(NATIVE)) {
        found.add(((Supplier) files).get());
      }
    } else if (plan instanceof DataSourceV2Relation) {
      DataSourceV2Relation relation = (DataSourceV2Relation) plan;
      if (isOurs(relation.table(), format)) {
        found.add(ofSource(relation));
      }
    } else if (plan instanceof DataSourceV2ScanRelation) {
      walk(((DataSourceV2ScanRelation) plan).relation(), format, found);
    } else if (plan instanceof InMemoryRelation) {
      walk(((InMemoryRelation) plan).cacheBuilder().logicalPlan(), format, found);
    }
    each(plan.children(), format, found);
    each(plan.subqueries(), format, found);
  }

  private static void each(Object plans, String format, Set found) {
    java.util.Iterator all = CollectionConverters.asJava((scala.collection.Seq) plans).iterator();
    while (all.hasNext()) {
      walk((LogicalPlan) all.next(), format, found);
    }
  }

  private static boolean isOurs(Object table, String format) {
    return table instanceof PythonTable && ((PythonTable) table).name().equalsIgnoreCase(format);
  }

  private static String ofSource(DataSourceV2Relation relation) {
    String path = relation.options().get("path");
    String name = path == null ? relation.options().get("table") : path;
    try {
      Object shared = field(PythonTable.class, "ds").get(relation.table());
      Object made = field(PythonDataSourceV2.class, "dataSourceInPython").get(shared);
      if (made instanceof PythonDataSourceCreationResult) {
        // A byte is a char in this encoding, and the text between the marks is ASCII.
        String pickled = new String(((PythonDataSourceCreationResult) made).dataSource(), StandardCharsets.ISO_8859_1);
        int begin = pickled.indexOf(BEGIN);
        int end = pickled.indexOf(END, begin);
        if (begin >= 0 && end >= 0) {
          return pickled.substring(begin + BEGIN.length(), end);
        }
      }
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this Spark keeps its Python data sources otherwise; icelock cannot tell what they read", e);
    }
    return "?" + (name == null ? "" : name);
  }

  private static Field field(Class owner, String name) throws ReflectiveOperationException {
    Field field = owner.getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }
}
