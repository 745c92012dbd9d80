package icelock;

import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.internal.connector.PredicateUtils$;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.Not;
import org.apache.spark.sql.sources.Or;
import scala.Option;
import scala.Product;
import scala.runtime.AbstractFunction0;

/**
 * Spark's filters as JSON, for native/filters.py.
 *
 * A filter is a list: its class's name, then its parts: filters, or a column's name and values. Strings, integers, booleans and null are
 * JSON's own; other values are {kind: text}, those of an unknown kind {"unknown": name of the class}.
 *
 * Filters are made here, with the dates and times of java.time. Those of java.sql, which Spark's own translation has, are unknown: their
 * calendar is the Julian one until 4 October 1582, which 15 October follows, and their zones have no local mean time, so that a filter
 * would be about other moments.
 */
class PushedFilters {
  private static final int DEEP = 200;
  private static final ObjectMapper JSON = new ObjectMapper().configure(JsonWriteFeature.ESCAPE_NON_ASCII.mappedFeature(), true);
  private static final Object UNKNOWN = Arrays.asList(new Object[] {"Unknown"});

  /** Returns what a condition of Spark's optimizer is as a filter, if there is one. */
  static Option<?> of(Expression condition) {
    return (Option<?>) translated(condition);
  }

  /** Returns filters for the predicates that have one. */
  static Filter[] of(Predicate[] predicates) {
    return (Filter[]) translated(predicates);
  }

  private static Object translated(Object given) {
    SQLConf conf = new SQLConf();
    conf.setConfString("spark.sql.datetime.java8API.enabled", "true");
    return SQLConf$.MODULE$.withExistingConf(conf, new Translation(given));
  }

  /** Translates an expression or predicates. */
  public static class Translation extends AbstractFunction0<Object> {
    private final Object given;

    public Translation(Object given) {
      this.given = given;
    }

    @Override
    public Object apply() {
      if (given instanceof Expression) {
        return DataSourceStrategy$.MODULE$.translateFilter((Expression) given, true);
      }
      return PredicateUtils$.MODULE$.toV1((Predicate[]) given);
    }
  }

  static byte[] json(List<?> filters) {
    List<Object> found = new ArrayList<>();
    for (Object filter : filters) {
      found.add(filter instanceof List ? filter : written(filter)); // those of FunctionFilters are written already
    }
    return text(found).getBytes(StandardCharsets.US_ASCII);
  }

  /** Returns a list of lists as JSON. */
  static String text(Object written) {
    try {
      return JSON.writeValueAsString(written);
    } catch (IOException e) {
      throw new IllegalStateException("filters cannot be written as JSON", e);
    }
  }

  /** Returns the lists of a JSON text. */
  static List<?> lists(String text) {
    try {
      return (List<?>) JSON.readValue(text, List.class);
    } catch (IOException e) {
      throw new IllegalStateException("filters cannot be read from JSON", e);
    }
  }

  /** Returns a filter as a list. */
  static Object written(Object filter) {
    return filter((Filter) filter, 0);
  }

  private static Object filter(Filter filter, int depth) {
    String name = filter.getClass().getSimpleName();
    if (depth > DEEP) {
      return UNKNOWN;
    }
    if (filter instanceof And) {
      return list(name, filter(((And) filter).left(), depth + 1), filter(((And) filter).right(), depth + 1));
    }
    if (filter instanceof Or) {
      return list(name, filter(((Or) filter).left(), depth + 1), filter(((Or) filter).right(), depth + 1));
    }
    if (filter instanceof Not) {
      return Arrays.asList(new Object[] {name, filter(((Not) filter).child(), depth + 1)});
    }
    if (filter instanceof In) {
      Object[] values = ((In) filter).values();
      List<Object> written = new ArrayList<>(values.length);
      for (Object value : values) {
        written.add(value(value));
      }
      return list(name, ((In) filter).attribute(), written);
    }
    // The others have a column's name, and most a value.
    Product parts = (Product) filter;
    List<Object> written = new ArrayList<>();
    written.add(name);
    for (int i = 0; i < parts.productArity(); i++) {
      written.add(value(parts.productElement(i)));
    }
    return written;
  }

  private static List<?> list(Object first, Object second, Object third) {
    return Arrays.asList(new Object[] {first, second, third});
  }

  static Object value(Object value) {
    if (value == null || value instanceof String || value instanceof Boolean) {
      return value;
    }
    if (value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte) {
      return value;
    }
    if (value instanceof Float || value instanceof Double) {
      return of("float", Double.toString(((Number) value).doubleValue()));
    }
    if (value instanceof BigDecimal) {
      return of("decimal", ((BigDecimal) value).toString());
    }
    if (value instanceof byte[]) {
      return of("bytes", Base64.getEncoder().encodeToString((byte[]) value));
    }
    if (value instanceof LocalDate) {
      return of("date", value.toString());
    }
    if (value instanceof Instant) {
      return instant("instant", (Instant) value);
    }
    if (value instanceof LocalDateTime) {
      return instant("datetime", ((LocalDateTime) value).toInstant(ZoneOffset.UTC));
    }
    return of("unknown", value.getClass().getName());
  }

  private static Object instant(String kind, Instant value) {
    return of(kind, value.getEpochSecond() + " " + value.getNano() / 1000);
  }

  private static Object of(String kind, String text) {
    return Collections.singletonMap(kind, text);
  }
}
