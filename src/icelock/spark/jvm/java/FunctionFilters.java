package icelock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.BinaryExpression;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.UnaryExpression;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Conditions as JSON for native/filters.py, with those that compare a catalog function of a column with values, such as bucket(4, id) = 1,
 * which Spark has no filters for.
 *
 * These are ["Function", comparison, function, number or null, column, values].
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"}) // Janino does not cast what generic methods return
class FunctionFilters {
  private static final String FUNCTIONS = "icelock.CatalogFunctions$";
  private static final int DEEP = 200;

  private FunctionFilters() {}

  /** Returns what a condition is at most, as JSON; null if nothing is known of it. */
  static Object of(Expression condition) {
    return of(condition, 0);
  }

  private static Object of(Expression condition, int depth) {
    Option filter = PushedFilters.of(condition);
    if (filter.isDefined()) {
      return PushedFilters.written(filter.get());
    }
    if (depth > DEEP) {
      return null;
    }
    if (condition instanceof And || condition instanceof Or) {
      Object left = of((Expression) ((BinaryExpression) condition).left(), depth + 1);
      Object right = of((Expression) ((BinaryExpression) condition).right(), depth + 1);
      if (left == null || right == null) {
        return condition instanceof Or ? null : left == null ? right : left;
      }
      return list(name(condition), left, right);
    }
    return compared(condition);
  }

  /** Returns a comparison of a function with values. */
  private static Object compared(Expression condition) {
    if (condition instanceof IsNull || condition instanceof IsNotNull) {
      return function(name(condition), (Expression) ((UnaryExpression) condition).child(), new ArrayList<>());
    }
    Expression child = condition instanceof Not ? ((Not) condition).child() : null;
    if (child instanceof EqualTo || child instanceof In || child instanceof InSet) {
      List<Object> found = (List<Object>) compared(child);
      if (found != null) {
        found.set(1, "Not" + found.get(1));
      }
      return found;
    }
    if (condition instanceof In) {
      return function("In", ((In) condition).value(), values((Seq) ((In) condition).list()));
    }
    if (condition instanceof InSet) {
      List<Object> values = new ArrayList<>();
      for (Object value : CollectionConverters.asJava(((InSet) condition).hset())) {
        values.add(plain(value, ((InSet) condition).child().dataType()));
      }
      return function("In", ((InSet) condition).child(), values);
    }
    return condition instanceof BinaryComparison ? compared((BinaryComparison) condition) : null;
  }

  private static Object compared(BinaryComparison condition) {
    Expression left = (Expression) condition.left();
    Expression right = (Expression) condition.right();
    String name = name(condition).replace("EqualNullSafe", "EqualTo"); // no value is null
    if (left instanceof Literal) {
      name = name.startsWith("Less") ? name.replace("Less", "Greater") : name.replace("Greater", "Less");
      return function(name, right, values(Plans.seq(Arrays.asList(new Object[] {left}))));
    }
    return function(name, left, values(Plans.seq(Arrays.asList(new Object[] {right}))));
  }

  private static List<Object> function(String comparison, Expression called, List<Object> values) {
    if (!(called instanceof StaticInvoke) || values.contains(null)) {
      return null;
    }
    String function = ((StaticInvoke) called).staticObject().getName();
    List<?> given = CollectionConverters.asJava((Seq) ((StaticInvoke) called).arguments());
    if (!function.startsWith(FUNCTIONS) || given.isEmpty()) {
      return null;
    }
    Object number = given.size() == 2 && given.get(0) instanceof Literal ? ((Literal) given.get(0)).value() : null;
    Option named = PushedFilters.of(new IsNotNull((Expression) given.get(given.size() - 1)));
    if (!named.isDefined() || given.size() == 2 != number instanceof Integer) {
      return null;
    }
    Object column = ((org.apache.spark.sql.sources.IsNotNull) named.get()).attribute();
    return list("Function", comparison, function.substring(FUNCTIONS.length()), number, column, values);
  }

  private static List<Object> values(Seq given) {
    List<Object> values = new ArrayList<>();
    for (Object value : CollectionConverters.asJava(given)) {
      values.add(value instanceof Literal ? plain(((Literal) value).value(), ((Literal) value).dataType()) : null);
    }
    return values;
  }

  /** Returns a value for JSON, dates as days since 1970; null for a null, and for text that is not compared byte by byte. */
  private static Object plain(Object value, DataType type) {
    if (value == null || (type instanceof StringType && !type.equals(DataTypes.StringType))) {
      return null;
    }
    if (value instanceof UTF8String) {
      return value.toString();
    }
    return PushedFilters.value(value instanceof Decimal ? ((Decimal) value).toJavaBigDecimal() : value);
  }

  private static String name(Expression condition) {
    return condition.getClass().getSimpleName();
  }

  private static List<Object> list(Object... parts) {
    return new ArrayList<>(Arrays.asList(parts));
  }
}
