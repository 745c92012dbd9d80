package icelock;

import java.lang.reflect.Method;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.execution.CachedData;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Function1;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * What is cached of tables, which is read again when the session has changed one. Spark does so after its own statements, by the name in
 * the statement; a table also has the names of its branches and metadata tables and those of other catalogs, and may be in a subquery.
 */
@SuppressWarnings("rawtypes") // Janino makes no bridge methods
public class CachedTables {
  private CachedTables() {}

  /**
   * Lets queries that are cached read a table again when they are used next; what is cached of a version stays.
   *
   * @param name the table's, with its catalog
   * @param uuid the table's, or null if it is not known
   */
  public static void readAgain(SparkSession session, String name, String uuid) throws ReflectiveOperationException {
    CacheManager cache = session.sharedState().cacheManager();
    if (!cache.isEmpty()) {
      Method recache = CacheManager.class.getDeclaredMethod("recacheByCondition", new Class<?>[] {SparkSession.class, Function1.class});
      recache.setAccessible(true);
      recache.invoke(cache, new Object[] {session, new Condition(name, uuid)});
    }
  }

  /** Whether a cached query reads a table as it is now. */
  public static class Condition extends AbstractFunction1 {
    private final String name;
    private final String uuid;

    Condition(String name, String uuid) {
      this.name = name;
      this.uuid = uuid;
    }

    @Override
    public Object apply(Object cached) {
      return Boolean.valueOf(reads(((CachedData) cached).plan()));
    }

    private boolean reads(LogicalPlan plan) {
      if (plan instanceof DataSourceV2Relation && ((DataSourceV2Relation) plan).timeTravelSpec().isEmpty()) {
        Object table = ((DataSourceV2Relation) plan).table();
        return table instanceof SparkTable && ((SparkTable) table).is(name, uuid);
      }
      for (Object child : CollectionConverters.asJava(plan.children())) {
        if (reads((LogicalPlan) child)) {
          return true;
        }
      }
      for (Object subquery : CollectionConverters.asJava(plan.subqueries())) {
        if (reads((LogicalPlan) subquery)) {
          return true;
        }
      }
      return false;
    }
  }

  /** Reads a table again after a command, as Spark's plans of commands want it. */
  public static class Refresh extends AbstractFunction0 {
    private final SparkSession session;
    private final String name;
    private final String uuid;

    Refresh(SparkSession session, String name, String uuid) {
      this.session = session;
      this.name = name;
      this.uuid = uuid;
    }

    @Override
    public Object apply() {
      try {
        readAgain(session, name, uuid);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException("icelock cannot reach what is cached in this Spark version, which keeps it elsewhere", e);
      }
      return BoxedUnit.UNIT;
    }
  }
}
