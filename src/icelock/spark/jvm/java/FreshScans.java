package icelock;

import java.util.function.Function;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;

/**
 * Gives each scan of an icelock table a plan of its own.
 *
 * Spark 4.1 to 4.3 keeps the planned partitions of a Python data source in the PythonDataSourceV2 that all queries on one DataFrame share,
 * pushed filters included: a later query without a filter, or the other side of a self-join, reads the wrong rows. This optimizer rule runs
 * before filters are pushed and puts a new PythonDataSourceV2 under each relation.
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino makes no bridge methods
public class FreshScans extends Rule {
  private final String format;

  public FreshScans(String format) {
    this.format = format;
  }

  /** Returns what SparkSessionExtensions.injectOptimizerRule takes; fails on a Spark version that works otherwise. */
  public static Function1 builder(String format) throws ReflectiveOperationException {
    Plans.field(PythonTable.class, "ds");
    Plans.field(PythonDataSourceV2.class, "dataSourceInPython");
    return Replacing.builder(new FreshScans(format));
  }

  @Override
  public TreeNode apply(TreeNode plan) {
    return plan.transform(new Replacing(new Freshen(format)));
  }

  /** The table of one scan. */
  public static class FreshTable extends PythonTable {
    public FreshTable(PythonDataSourceV2 source, String format, StructType schema) {
      super(source, format, schema);
    }
  }

  /** Puts a FreshTable in a table's place. */
  public static class Freshen implements Function<Object, Object> {
    private final String format;

    public Freshen(String format) {
      this.format = format;
    }

    @Override
    public Object apply(Object node) {
      if (!(node instanceof DataSourceV2Relation)) {
        return null;
      }
      DataSourceV2Relation relation = (DataSourceV2Relation) node;
      if (relation.table() instanceof FreshTable || !Plans.isOurs(relation.table(), format)) {
        return null;
      }
      PythonTable table = (PythonTable) relation.table();
      PythonDataSourceV2 source = new PythonDataSourceV2();
      source.setShortName(table.name());
      try {
        PythonDataSourceV2 shared = (PythonDataSourceV2) Plans.field(PythonTable.class, "ds").get(table);
        Object created = shared.getOrCreateDataSourceInPython(table.name(), relation.options(), Option.apply(table.schema()));
        Plans.field(PythonDataSourceV2.class, "dataSourceInPython").set(source, created);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException("icelock cannot push filters in this Spark version, which keeps Python data sources elsewhere", e);
      }
      Object[] parts = Plans.parts(relation);
      parts[0] = new FreshTable(source, table.name(), table.schema());
      return relation.makeCopy(parts);
    }
  }
}
