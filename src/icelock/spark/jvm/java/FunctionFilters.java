package icelock;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Conditions such as bucket(4, id) = 1, which compare a catalog function of a column with a value: the plan of a scan prunes files with
 * them, where the table is partitioned by the same transform.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"}) // Janino does not cast what generic methods return
class FunctionFilters {
  private static final String FUNCTIONS = "icelock.CatalogFunctions$";

  private FunctionFilters() {}

  /** Returns a condition as ["Function", comparison, function, number or null, column, value], or null if it is another one. */
  static List<?> of(Expression condition) {
    if (!(condition instanceof BinaryComparison)) {
      return null;
    }
    Expression called = (Expression) ((BinaryComparison) condition).left();
    Expression compared = (Expression) ((BinaryComparison) condition).right();
    if (!(called instanceof StaticInvoke) || !(compared instanceof Literal)) {
      return null;
    }
    String function = ((StaticInvoke) called).staticObject().getName();
    List<?> given = CollectionConverters.asJava((Seq) ((StaticInvoke) called).arguments());
    Object value = plain((Literal) compared);
    if (!function.startsWith(FUNCTIONS) || given.isEmpty() || value == null) {
      return null;
    }
    Object column = given.get(given.size() - 1);
    Object number = given.size() == 2 && given.get(0) instanceof Literal ? plain((Literal) given.get(0)) : null;
    if (!(column instanceof AttributeReference) || given.size() == 2 == (number == null)) {
      return null;
    }
    List<Object> made = new ArrayList<>();
    made.add("Function");
    made.add(condition.getClass().getSimpleName());
    made.add(function.substring(FUNCTIONS.length()));
    made.add(number);
    made.add(((AttributeReference) column).name());
    made.add(value);
    return made;
  }

  /** Returns a whole number, dates as days since 1970; null for a null and for other values, such as texts, which have collations. */
  private static Object plain(Literal literal) {
    Object value = literal.value();
    return value instanceof Integer || value instanceof Long || value instanceof Short || value instanceof Byte ? value : null;
  }
}
