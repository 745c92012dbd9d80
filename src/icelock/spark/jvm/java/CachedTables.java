package icelock;

import java.lang.reflect.Method;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.execution.CachedData;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Function1;
import scala.Option;
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
  /** How many tables had been loaded when the session last changed one, by the table's name and by its uuid. */
  private static final Map<Object, Object> CHANGED = new ConcurrentHashMap<>();

  private static final Map<Object, Object> FORGETTING = new ConcurrentHashMap<>();

  private CachedTables() {}

  /**
   * Lets queries that are cached read a table again when they are used next; what is cached of a version stays.
   *
   * @param name the table's, with its catalog
   * @param uuid the table's, or null if it is not known
   */
  public static void readAgain(SparkSession session, String name, String uuid) throws ReflectiveOperationException {
    Long loaded = Long.valueOf(SparkTable.loaded());
    CHANGED.put(name, loaded);
    if (uuid != null) {
      CHANGED.put(uuid, loaded);
    }
    CacheManager cache = session.sharedState().cacheManager();
    if (!cache.isEmpty()) {
      Method recache = CacheManager.class.getDeclaredMethod("recacheByCondition", new Class<?>[] {SparkSession.class, Function1.class});
      recache.setAccessible(true);
      recache.invoke(cache, new Object[] {session, new Condition(name, uuid)});
    }
  }

  /**
   * Drops what is cached of a table from before the session's last change of it: a DataFrame keeps the rows that it had, may be cached
   * after the change, and Spark (from 4.1 on) takes a cached relation for the name of its table. Called when a name was looked up.
   */
  static void forgetOlder(SparkTable table) {
    Option active = SparkSession.getActiveSession();
    Thread thread = Thread.currentThread();
    if (CHANGED.isEmpty() || active.isEmpty() || FORGETTING.putIfAbsent(thread, Boolean.TRUE) != null) {
      return;
    }
    try {
      SparkSession session = (SparkSession) active.get();
      CacheManager cache = session.sharedState().cacheManager();
      if (!cache.isEmpty()) {
        Method forget = CacheManager.class.getDeclaredMethod(
            "uncacheByCondition", new Class<?>[] {SparkSession.class, Function1.class, boolean.class, boolean.class});
        forget.setAccessible(true);
        forget.invoke(cache, new Object[] {session, new Older(table.uuid()), Boolean.FALSE, Boolean.FALSE});
      }
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("icelock cannot reach what is cached in this Spark version, which keeps it elsewhere", e);
    } finally {
      FORGETTING.remove(thread);
    }
  }

  /** Whether a cached plan is a table alone, from before the session's last change of it. */
  public static class Older extends AbstractFunction1 {
    private final String uuid;

    Older(String uuid) {
      this.uuid = uuid;
    }

    @Override
    public Object apply(Object plan) {
      Object found = plan;
      while (found instanceof SubqueryAlias) {
        found = ((SubqueryAlias) found).child();
      }
      boolean older = false;
      if (found instanceof DataSourceV2Relation && ((DataSourceV2Relation) found).timeTravelSpec().isEmpty()
          && ((DataSourceV2Relation) found).table() instanceof SparkTable) {
        SparkTable table = (SparkTable) ((DataSourceV2Relation) found).table();
        older = table.is("", uuid) && (table.number() <= last(table.name()) || table.number() <= last(table.uuid()));
      }
      return Boolean.valueOf(older);
    }

    private static long last(String name) {
      Object found = CHANGED.get(name);
      return found == null ? 0 : ((Long) found).longValue();
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
