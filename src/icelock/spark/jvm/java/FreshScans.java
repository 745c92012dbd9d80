package icelock;

import java.lang.reflect.Field;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * Gives each scan of an icelock table a plan of its own.
 *
 * Spark 4.1 to 4.3 keeps the planned partitions of a Python data source in the PythonDataSourceV2 that all queries on one DataFrame share, pushed
 * filters included: a later query without a filter, or the other side of a self-join, reads the wrong rows. This optimizer rule runs before
 * filters are pushed and puts a new PythonDataSourceV2 under each relation. Compiled in a running session by jvm.py; raw types, as Janino
 * knows no generics.
 */
public class FreshScans extends Rule {
  private final String format;

  public FreshScans(String format) {
    this.format = format;
  }

  /** Returns what SparkSessionExtensions.injectOptimizerRule takes; fails where this Spark is another than expected. */
  public static Function1 builder(final String format) throws ReflectiveOperationException {
    Freshen.field(PythonTable.class, "ds");
    Freshen.field(PythonDataSourceV2.class, "dataSourceInPython");
    return new AbstractFunction1() {
      public Object apply(Object session) {
        return new FreshScans(format);
      }
    };
  }

  public TreeNode apply(TreeNode plan) {
    return plan.transform(new Freshen(format));
  }

  /** The table of one scan; told by its name, as another session may have compiled this class again. */
  public static class FreshTable extends PythonTable {
    public FreshTable(PythonDataSourceV2 source, String format, StructType schema) {
      super(source, format, schema);
    }
  }

  public static class Freshen extends AbstractPartialFunction {
    private final String format;

    public Freshen(String format) {
      this.format = format;
    }

    public boolean isDefinedAt(Object node) {
      if (!(node instanceof DataSourceV2Relation)) {
        return false;
      }
      Object table = ((DataSourceV2Relation) node).table();
      return table instanceof PythonTable
          && !table.getClass().getName().equals(FreshTable.class.getName())
          && ((PythonTable) table).name().equalsIgnoreCase(format);
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      return isDefinedAt(node) ? freshen((DataSourceV2Relation) node) : otherwise.apply(node);
    }

    private static Object freshen(DataSourceV2Relation relation) {
      PythonTable table = (PythonTable) relation.table();
      PythonDataSourceV2 source = new PythonDataSourceV2();
      source.setShortName(table.name());
      try {
        PythonDataSourceV2 shared = (PythonDataSourceV2) field(PythonTable.class, "ds").get(table);
        Object created = shared.getOrCreateDataSourceInPython(table.name(), relation.options(), Option.apply(table.schema()));
        field(PythonDataSourceV2.class, "dataSourceInPython").set(source, created);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException("this Spark keeps its Python data sources otherwise; icelock cannot push filters here", e);
      }
      Object[] parts = new Object[relation.productArity()];
      for (int i = 0; i < parts.length; i++) {
        parts[i] = relation.productElement(i);
      }
      parts[0] = new FreshTable(source, table.name(), table.schema());
      return relation.makeCopy(parts);
    }

    static Field field(Class owner, String name) throws ReflectiveOperationException {
      Field field = owner.getDeclaredField(name);
      field.setAccessible(true);
      return field;
    }
  }
}
