package icelock;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.unsafe.Platform;

/**
 * The Python process of a session, which does what Spark asks of its catalogs and tables: requests and answers are JSON, objects of this
 * JVM are handed over beside them, by number.
 */
public class PythonProcess {
  public static final String EXCLUDED =
      "icelock's rules are not in this session's optimizer, so its tables cannot be read or written by SQL: take"
      + " them out of spark.sql.optimizer.excludedRules, or call icelock.spark.register(spark) again";
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<Object, Object> OBJECTS = new ConcurrentHashMap<>();
  private static final AtomicLong NUMBERS = new AtomicLong();
  private static final String[] PYTHON_ERRORS = {"NoSuchTableError", "NoSuchNamespaceError", "TableAlreadyExistsError",
      "NamespaceAlreadyExistsError", "NamespaceNotEmptyError", "NoSuchIcebergTableError"};
  private final Callbacks.Target target;

  PythonProcess(Callbacks.Target target) {
    this.target = target;
  }

  /** Keeps an object until it is taken; returns its number. */
  public static long give(Object object) {
    long number = NUMBERS.incrementAndGet();
    OBJECTS.put(Long.valueOf(number), object);
    return number;
  }

  /** Returns an object that was given, once. */
  public static Object take(long number) {
    return OBJECTS.remove(Long.valueOf(number));
  }

  /** Lets this thread work for the one that asks: in its session, or else this one, with its job group, description and pool. */
  public static void workFor(long caller, SparkSession session) {
    SparkSession.setActiveSession(session);
    Caller found = (Caller) OBJECTS.get(Long.valueOf(caller));
    if (found != null) {
      found.enter();
    }
  }

  /** Returns another function of the same process. */
  PythonProcess other(Object number) {
    return new PythonProcess(target.other(((Number) number).longValue()));
  }

  /** Returns a request to do something. */
  static Map<Object, Object> request(String what) {
    Map<Object, Object> made = new LinkedHashMap<>();
    made.put("do", what);
    return made;
  }

  Object call(Map<Object, Object> request) {
    return call(request, null);
  }

  /** Returns the answer to a request; what goes with it may be null. Spark's own exceptions are thrown where Spark waits for them. */
  Object call(Map<Object, Object> request, Object with) {
    Map<Object, Object> whole = new LinkedHashMap<>(request);
    Long caller = Long.valueOf(give(new Caller()));
    Long object = with == null ? null : Long.valueOf(give(with));
    whole.put("caller", caller);
    whole.put("object", object);
    try {
      return JSON.readValue(target.call(JSON.writeValueAsBytes(whole)), Object.class);
    } catch (Failure e) {
      Platform.throwException(asSpark(e, request));
      return null;
    } catch (IOException e) {
      throw new IllegalStateException("the answer of the Python process cannot be read", e);
    } finally {
      OBJECTS.remove(caller);
      if (object != null) {
        OBJECTS.remove(object);
      }
    }
  }

  private static Throwable asSpark(Failure error, Map<?, ?> request) {
    String kind = error.kind().substring(error.kind().lastIndexOf('.') + 1);
    if (!error.kind().startsWith("pyiceberg.") || !Arrays.asList(PYTHON_ERRORS).contains(kind)) {
      return error;
    }
    boolean other = request.containsKey("to") && !kind.equals("NoSuchTableError"); // the new name of a table
    Object named = other ? request.get("to") : request.containsKey("table") ? request.get("table") : request.get("namespace");
    if (!(named instanceof List)) {
      return error;
    }
    String[] parts = texts(named);
    if (kind.equals("NoSuchNamespaceError")) {
      String[] namespace = request.containsKey("table") ? front(parts) : parts;
      return new NoSuchNamespaceException(namespace);
    }
    if (kind.equals("NamespaceAlreadyExistsError")) {
      return new NamespaceAlreadyExistsException(parts);
    }
    if (kind.equals("NamespaceNotEmptyError")) {
      return new NonEmptyNamespaceException(parts);
    }
    Identifier table = Identifier.of(front(parts), parts[parts.length - 1]);
    return kind.equals("TableAlreadyExistsError") ? new TableAlreadyExistsException(table) : new NoSuchTableException(table);
  }

  private static String[] front(String[] parts) {
    String[] made = new String[parts.length - 1];
    System.arraycopy(parts, 0, made, 0, made.length);
    return made;
  }

  static String[] texts(Object list) {
    Object[] given = ((List<?>) list).toArray();
    String[] made = new String[given.length];
    for (int i = 0; i < made.length; i++) {
      made[i] = (String) given[i];
    }
    return made;
  }

  /** The thread that asks. */
  public static class Caller {
    private final SparkSession session;
    private final Properties properties;

    Caller() {
      session = (SparkSession) SparkSession.getActiveSession().getOrElse(null);
      properties = session == null ? null : (Properties) session.sparkContext().getLocalProperties().clone();
    }

    void enter() {
      if (session != null) {
        SparkSession.setActiveSession(session);
        session.sparkContext().setLocalProperties((Properties) properties.clone());
      }
    }
  }
}
