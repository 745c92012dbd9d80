package icelock;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.function.Function;
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

/**
 * Finds the versions of icelock tables that a plan reads: in joins, unions, subqueries, views and cached plans too.
 *
 * Each scan has its version (seen.py): one of Spark's own reader in its FileIndex, one of the data source in the pickle of its Python
 * object, a table of a statement in itself. This optimizer rule puts the versions that the rows of an overwrite come from into the options
 * of the write, as Spark does not show a data source the plan.
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino makes no bridge methods
public class OwnRows extends Rule {
  private static final String OPTION = "icelock-rows-read";
  private static final String NATIVE = "icelock.PlannedFiles";
  private static final String OF_STATEMENTS = "icelock.SparkTable"; // and classes in it
  private static final String BEGIN = "icelock seen[";
  private static final String END = "]icelock seen";
  private final String format;

  public OwnRows(String format) {
    this.format = format;
  }

  /** Returns what SparkSessionExtensions.injectOptimizerRule takes; fails on a Spark version that works otherwise. */
  public static Function1 builder(String format) throws ReflectiveOperationException {
    Plans.field(PythonTable.class, "ds");
    Plans.field(PythonDataSourceV2.class, "dataSourceInPython");
    return Replacing.builder(new OwnRows(format));
  }

  /** Returns the versions that the scans of a plan read, one a line; "?" and the table's name for a scan that does not say. */
  public static String seen(LogicalPlan plan, String format) {
    Set<String> found = new LinkedHashSet<>();
    walk(plan, format, found);
    return String.join("\n", found);
  }

  @Override
  public TreeNode apply(TreeNode plan) {
    return plan.transform(new Replacing(new Marking(format)));
  }

  /** Writes the option into an overwrite that does not have it yet. */
  public static class Marking implements Function<Object, Object> {
    private final String format;

    public Marking(String format) {
      this.format = format;
    }

    @Override
    public Object apply(Object node) {
      if (!ours(node)) {
        return null;
      }
      TreeNode command = (TreeNode) node;
      DataSourceV2Relation relation = (DataSourceV2Relation) ((V2WriteCommand) node).table();
      if (options(node).contains(OPTION) || relation.options().containsKey(OPTION)) {
        return null;
      }
      String seen = seen(((V2WriteCommand) node).query(), format);
      // Spark wants the options of both to be equal, or one of them to be empty.
      boolean ofCommand = !options(node).isEmpty() || relation.options().isEmpty();
      boolean ofRelation = !relation.options().isEmpty();
      Object[] parts = Plans.parts(command);
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
      HashMap<String, String> options = new HashMap<>(relation.options().asCaseSensitiveMap());
      options.put(OPTION, seen);
      Object[] parts = Plans.parts(relation);
      for (int i = 0; i < parts.length; i++) {
        if (parts[i] == relation.options()) {
          parts[i] = new CaseInsensitiveStringMap(options);
        }
      }
      return (DataSourceV2Relation) ((TreeNode) relation).makeCopy(parts);
    }

    private boolean ours(Object node) {
      if (!(node instanceof OverwriteByExpression) && !(node instanceof OverwritePartitionsDynamic)) {
        return false;
      }
      Object target = ((V2WriteCommand) node).table();
      return target instanceof DataSourceV2Relation && Plans.isOurs(((DataSourceV2Relation) target).table(), format);
    }

    private static Map options(Object node) {
      return node instanceof OverwriteByExpression ? ((OverwriteByExpression) node).writeOptions()
                                                   : ((OverwritePartitionsDynamic) node).writeOptions();
    }
  }

  private static void walk(LogicalPlan plan, String format, Set<String> found) {
    if (plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof HadoopFsRelation) {
      Object files = ((HadoopFsRelation) ((LogicalRelation) plan).relation()).location();
      if (files.getClass().getName().equals(NATIVE)) {
        found.add((String) ((Supplier<?>) files).get());
      }
    } else if (plan instanceof DataSourceV2Relation) {
      DataSourceV2Relation relation = (DataSourceV2Relation) plan;
      if (Plans.isOurs(relation.table(), format)) {
        found.add(ofSource(relation));
      } else if (relation.table().getClass().getName().startsWith(OF_STATEMENTS) && ((Supplier<?>) relation.table()).get() != null) {
        found.add((String) ((Supplier<?>) relation.table()).get());
      }
    } else if (plan instanceof DataSourceV2ScanRelation) {
      walk(((DataSourceV2ScanRelation) plan).relation(), format, found);
    } else if (plan instanceof InMemoryRelation) {
      walk(((InMemoryRelation) plan).cacheBuilder().logicalPlan(), format, found);
    }
    each(plan.children(), format, found);
    each(plan.subqueries(), format, found);
  }

  private static void each(Object plans, String format, Set<String> found) {
    for (Object plan : CollectionConverters.asJava((scala.collection.Seq<?>) plans)) {
      walk((LogicalPlan) plan, format, found);
    }
  }

  private static String ofSource(DataSourceV2Relation relation) {
    String path = relation.options().get("path");
    String name = path == null ? relation.options().get("table") : path;
    try {
      Object shared = Plans.field(PythonTable.class, "ds").get(relation.table());
      Object made = Plans.field(PythonDataSourceV2.class, "dataSourceInPython").get(shared);
      if (made instanceof PythonDataSourceCreationResult) {
        // Each byte is a char in this encoding, and the text between the marks is ASCII.
        String pickled = new String(((PythonDataSourceCreationResult) made).dataSource(), StandardCharsets.ISO_8859_1);
        int begin = pickled.indexOf(BEGIN);
        int end = pickled.indexOf(END, begin);
        if (begin >= 0 && end >= 0) {
          return pickled.substring(begin + BEGIN.length(), end);
        }
      }
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(
          "icelock cannot tell what is read in this Spark version, which keeps Python data sources elsewhere", e);
    }
    return "?" + (name == null ? "" : name);
  }
}
