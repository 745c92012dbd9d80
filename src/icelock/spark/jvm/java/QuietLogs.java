package icelock;

import java.util.Map;
import org.apache.parquet.filter2.compat.FilterCompat;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps values of rows out of the logs of tasks.
 *
 * Parquet's reader logs at INFO which rows it looks for. A literal of the user's is in plans anyway, but Spark also pushes down the result
 * of a scalar subquery, which comes from rows. So that one logger is set to WARN, unless log4j's configuration names it.
 */
class QuietLogs {
  private static final String NAME = FilterCompat.class.getName();
  private static final Logger LOGGER = LoggerFactory.getLogger(FilterCompat.class);
  private static volatile boolean without;

  private QuietLogs() {}

  /** Called for each file, as a reloaded configuration forgets the level. */
  static void set() {
    if (!without && LOGGER.isInfoEnabled()) {
      lower();
    }
  }

  /** By reflection: a platform may not log by log4j, and is left alone then. */
  private static synchronized void lower() {
    try {
      ClassLoader loader = FilterCompat.class.getClassLoader();
      Class<?> level = Class.forName("org.apache.logging.log4j.Level", true, loader);
      Class<?> made = Class.forName("org.apache.logging.log4j.core.config.LoggerConfig", true, loader);
      Class<?> configuration = Class.forName("org.apache.logging.log4j.core.config.Configuration", true, loader);
      Class<?> manager = Class.forName("org.apache.logging.log4j.LogManager", true, loader);
      Object context = manager.getMethod("getContext", new Class<?>[] {ClassLoader.class, boolean.class})
                           .invoke(null, new Object[] {loader, Boolean.FALSE});
      Object found = context.getClass().getMethod("getConfiguration", new Class<?>[0]).invoke(context, new Object[0]);
      if (((Map<?, ?>) configuration.getMethod("getLoggers", new Class<?>[0]).invoke(found, new Object[0])).containsKey(NAME)) {
        return;
      }
      Object quiet = made.getConstructor(new Class<?>[] {String.class, level, boolean.class})
                         .newInstance(new Object[] {NAME, level.getField("WARN").get(null), Boolean.TRUE});
      configuration.getMethod("addLogger", new Class<?>[] {String.class, made}).invoke(found, new Object[] {NAME, quiet});
      context.getClass().getMethod("updateLoggers", new Class<?>[0]).invoke(context, new Object[0]);
    } catch (ReflectiveOperationException e) {
      without = true;
    }
  }
}
