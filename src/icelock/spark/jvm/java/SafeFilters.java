package icelock;

import java.io.Serializable;
import java.sql.Date;
import java.sql.Timestamp;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.IsNull;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Or;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Which of Spark's filters Parquet may apply to files.
 *
 * Filters go by name into files whose columns may have had other names: only those are pushed whose columns always had theirs.
 */
public class SafeFilters implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final LocalDate REFORM = LocalDate.of(1582, 10, 15);
  private static final long YEAR_1900 = -2208988800000L;
  private final HashSet<String> pushable;
  private final HashSet<String> floats;

  /**
   * @param pushable columns that filters may be pushed for, as Spark's filters name them
   * @param floats those of them that are floating-point numbers
   */
  public SafeFilters(List<String> pushable, List<String> floats) {
    this.pushable = new HashSet<>(pushable);
    this.floats = new HashSet<>(floats);
  }

  Seq<?> safe(Seq<?> filters) {
    List<Object> kept = new ArrayList<>();
    for (Object each : CollectionConverters.asJava(filters)) {
      Filter filter = (Filter) each;
      if (pushable.containsAll(Arrays.asList(filter.references())) && exact(filter) && !shifted(filter)) {
        kept.add(filter);
      }
    }
    return Plans.seq(kept);
  }

  /**
   * Whether a filter means the same to Parquet as to Spark. To Spark NaN is the greatest number and -0.0 is 0.0; bounds in files leave NaN
   * out, and dictionaries tell the zeros apart.
   */
  private boolean exact(Filter filter) {
    boolean compares = false;
    for (String reference : filter.references()) {
      compares = compares || floats.contains(reference);
    }
    if (!compares || filter instanceof IsNull || filter instanceof IsNotNull) {
      return true;
    }
    if (filter instanceof And) {
      return exact(((And) filter).left()) && exact(((And) filter).right());
    }
    if (filter instanceof Or) {
      return exact(((Or) filter).left()) && exact(((Or) filter).right());
    }
    if (filter instanceof EqualTo) {
      return ordinary(((EqualTo) filter).value());
    }
    if (filter instanceof LessThan) {
      return ordinary(((LessThan) filter).value());
    }
    return filter instanceof LessThanOrEqual && ordinary(((LessThanOrEqual) filter).value());
  }

  /**
   * Whether some value may be about another moment than the query's. In the calendar of java.sql the days before 15 October 1582 are that
   * day; times are shifted until 1900, by the calendar and by zones, and not all can be shifted back.
   */
  private static boolean shifted(Object part) {
    if (part instanceof Date) {
      return ((Date) part).toLocalDate().equals(REFORM);
    }
    if (part instanceof Timestamp) {
      return ((Timestamp) part).getTime() < YEAR_1900;
    }
    if (part instanceof Object[]) {
      for (Object each : (Object[]) part) {
        if (shifted(each)) {
          return true;
        }
      }
    }
    return part instanceof Filter && shifted(Plans.parts((Product) part));
  }

  private static boolean ordinary(Object value) {
    double number = value instanceof Number ? ((Number) value).doubleValue() : 0.0;
    return number == number && number != 0.0;
  }
}
