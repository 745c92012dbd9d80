package icelock;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Helpers for Spark's plans and schemas, and the Scala collections in them. */
class Plans {
  private Plans() {}

  /** Returns a list as Scala has it. */
  static Seq<?> seq(List<?> list) {
    return CollectionConverters.asScala(list).toSeq();
  }

  /** Returns an empty list as Scala has it. */
  static Seq<?> none() {
    return seq(new ArrayList<Object>());
  }

  /** Returns the constructor arguments of a node, for makeCopy. */
  static Object[] parts(Product node) {
    Object[] parts = new Object[node.productArity()];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = node.productElement(i);
    }
    return parts;
  }

  /** Returns the fields of both. */
  static StructType and(StructType first, StructType second) {
    StructType both = first;
    for (StructField field : second.fields()) {
      both = both.add(field);
    }
    return both;
  }

  /** Whether a table is one of a Python data source of that format. */
  static boolean isOurs(Object table, String format) {
    return table instanceof PythonTable && ((PythonTable) table).name().equalsIgnoreCase(format);
  }

  /** Returns a private field of one of Spark's classes. */
  static Field field(Class<?> owner, String name) throws ReflectiveOperationException {
    Field field = owner.getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }
}
