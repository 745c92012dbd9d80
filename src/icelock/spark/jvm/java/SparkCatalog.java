package icelock;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.connector.catalog.CatalogV2Util$;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Spark's catalog of icelock tables: what statements ask of it, the session's Python process does. */
public class SparkCatalog implements StagingTableCatalog, SupportsNamespaces, ProcedureCatalog, FunctionCatalog {
  private static final Map<Object, Object> SESSIONS = new ConcurrentHashMap<>();
  private String name;
  private PythonProcess python;

  /** Called by Python: which function answers for a session. */
  public static void serve(String session, Callbacks.Target target) {
    SESSIONS.put(session, new PythonProcess(target));
  }

  @Override
  public void initialize(String catalog, CaseInsensitiveStringMap options) {
    String session = options.get("icelock-session");
    name = catalog;
    python = session == null ? null : (PythonProcess) SESSIONS.get(session);
    if (python == null) {
      throw new IllegalStateException(
          "catalog " + catalog + " is not known to icelock in this session: call icelock.spark.register(spark)");
    }
  }

  @Override
  public String name() {
    return name;
  }

  private Map<Object, Object> request(String what, Identifier table) {
    Map<Object, Object> made = PythonProcess.request(what);
    made.put("catalog", name);
    made.put("table", parts(table));
    return made;
  }

  private Map<Object, Object> request(String what, String[] namespace) {
    Map<Object, Object> made = PythonProcess.request(what);
    made.put("catalog", name);
    made.put("namespace", Arrays.asList(namespace));
    return made;
  }

  private static List<?> parts(Identifier table) {
    List<Object> parts = new ArrayList<>();
    parts.addAll(Arrays.asList(table.namespace()));
    parts.add(table.name());
    return parts;
  }

  // Tables

  @Override
  public Set<TableCatalogCapability> capabilities() {
    return EnumSet.of(TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE);
  }

  @Override
  public Identifier[] listTables(String[] namespace) {
    Object[] found = ((List<?>) python.call(request("list tables", namespace))).toArray();
    Identifier[] made = new Identifier[found.length];
    for (int i = 0; i < made.length; i++) {
      made[i] = Identifier.of(namespace, (String) found[i]);
    }
    return made;
  }

  /** Of a table that cannot be read here too, so that it can be dropped. */
  @Override
  public boolean tableExists(Identifier table) {
    return Boolean.TRUE.equals(python.call(request("table exists", table)));
  }

  /** Throws for a name of which no table can be made. */
  public void checkNew(Identifier table) {
    python.call(request("check new", table));
  }

  @Override
  public Table loadTable(Identifier table) {
    return loaded(request("load table", table));
  }

  @Override
  public Table loadTable(Identifier table, String version) {
    Map<Object, Object> request = request("load table", table);
    request.put("version", version);
    return loaded(request);
  }

  @Override
  public Table loadTable(Identifier table, long timestamp) {
    Map<Object, Object> request = request("load table", table);
    request.put("microseconds", Long.valueOf(timestamp));
    return loaded(request);
  }

  private Table loaded(Map<Object, Object> request) {
    Map<?, ?> described = (Map<?, ?>) python.call(request);
    boolean writable = Boolean.TRUE.equals(described.get("writable"));
    SparkTable table = writable ? new SparkTable.Writable(python, described) : new SparkTable(python, described);
    CachedTables.forgetOlder(table);
    return table;
  }

  @Override
  public Table createTable(Identifier table, TableInfo info) {
    python.call(creation(table, info, "create"));
    return loadTable(table);
  }

  @Override
  public StagedTable stageCreate(Identifier table, TableInfo info) {
    return new SparkTable.Staged(python, creation(table, info, "create"), table);
  }

  @Override
  public StagedTable stageReplace(Identifier table, TableInfo info) {
    return new SparkTable.Staged(python, creation(table, info, "replace"), table);
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier table, TableInfo info) {
    return new SparkTable.Staged(python, creation(table, info, "createOrReplace"), table);
  }

  private Map<Object, Object> creation(Identifier table, TableInfo info, String mode) {
    Map<Object, Object> request = request("create table", table);
    List<Object> transforms = new ArrayList<>();
    for (Transform transform : info.partitions()) {
      transforms.add(text(transform));
    }
    request.put("mode", mode);
    request.put("schema", CatalogV2Util$.MODULE$.v2ColumnsToStructType(info.columns()).json());
    request.put("partitioned_by", transforms);
    request.put("properties", info.properties());
    return request;
  }

  /** Returns a transform as Python's partition_spec takes it, with names in backticks that are more than letters and digits. */
  private static String text(Transform transform) {
    Expression[] arguments = transform.arguments();
    String[] texts = new String[arguments.length];
    for (int i = 0; i < texts.length; i++) {
      boolean named = arguments[i] instanceof NamedReference;
      texts[i] = named ? text((NamedReference) arguments[i]) : String.valueOf(((Literal<?>) arguments[i]).value());
    }
    String inside = String.join(", ", texts);
    return transform.name().equals("identity") ? inside : transform.name() + "(" + inside + ")";
  }

  private static String text(NamedReference column) {
    String[] parts = column.fieldNames();
    String[] texts = new String[parts.length];
    for (int i = 0; i < parts.length; i++) {
      texts[i] = parts[i].matches("\\w+") ? parts[i] : "`" + parts[i].replace("`", "``") + "`";
    }
    return String.join(".", texts);
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) {
    Map<Object, Object> request = request("alter table", table);
    List<Object> made = new ArrayList<>();
    for (TableChange change : changes) {
      made.add(change(change));
    }
    request.put("changes", made);
    python.call(request);
    return loadTable(table);
  }

  private static Map<?, ?> change(TableChange change) {
    Map<Object, Object> made = new LinkedHashMap<>();
    made.put("kind", change.getClass().getSimpleName());
    if (change instanceof TableChange.SetProperty) {
      made.put("property", ((TableChange.SetProperty) change).property());
      made.put("value", ((TableChange.SetProperty) change).value());
    } else if (change instanceof TableChange.RemoveProperty) {
      made.put("property", ((TableChange.RemoveProperty) change).property());
    } else if (change instanceof TableChange.ColumnChange) {
      made.put("column", Arrays.asList(((TableChange.ColumnChange) change).fieldNames()));
      column((TableChange.ColumnChange) change, made);
    }
    return made;
  }

  @SuppressWarnings("deprecation") // its successor is not in Spark 4.1
  private static void column(TableChange.ColumnChange change, Map<Object, Object> made) {
    if (change instanceof TableChange.AddColumn) {
      TableChange.AddColumn add = (TableChange.AddColumn) change;
      made.put("type", json(add.dataType()));
      made.put("nullable", Boolean.valueOf(add.isNullable()));
      made.put("comment", add.comment());
      made.put("position", add.position() == null ? null : add.position().toString());
      made.put("default", sql(add.defaultValue()));
    } else if (change instanceof TableChange.RenameColumn) {
      made.put("name", ((TableChange.RenameColumn) change).newName());
    } else if (change instanceof TableChange.UpdateColumnType) {
      made.put("type", json(((TableChange.UpdateColumnType) change).newDataType()));
    } else if (change instanceof TableChange.UpdateColumnNullability) {
      made.put("nullable", Boolean.valueOf(((TableChange.UpdateColumnNullability) change).nullable()));
    } else if (change instanceof TableChange.UpdateColumnComment) {
      made.put("comment", ((TableChange.UpdateColumnComment) change).newComment());
    } else if (change instanceof TableChange.UpdateColumnPosition) {
      made.put("position", ((TableChange.UpdateColumnPosition) change).position().toString());
    } else if (change instanceof TableChange.UpdateColumnDefaultValue) {
      made.put("default", ((TableChange.UpdateColumnDefaultValue) change).newDefaultValue());
    } else if (change instanceof TableChange.DeleteColumn) {
      made.put("if_exists", ((TableChange.DeleteColumn) change).ifExists());
    }
  }

  /** Returns a type as the JSON of a schema with one column: collations are in the JSON of columns, not of types. */
  private static String json(DataType type) {
    return new StructType().add("column", type).json();
  }

  /** Returns a default's SQL. Spark 4.3 declares the method in a class that only its package sees, which Janino does not accept. */
  private static String sql(Object value) {
    if (value == null) {
      return null;
    }
    try {
      java.lang.reflect.Method method = value.getClass().getMethod("getSql");
      method.setAccessible(true);
      return (String) method.invoke(value);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  @Override
  public boolean dropTable(Identifier table) {
    return Boolean.TRUE.equals(python.call(request("drop table", table)));
  }

  @Override
  public boolean purgeTable(Identifier table) {
    return Boolean.TRUE.equals(python.call(request("purge table", table)));
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    Map<Object, Object> request = request("rename table", from);
    request.put("to", parts(to));
    python.call(request);
  }

  // Namespaces

  @Override
  public String[][] listNamespaces() {
    return namespaces(request("list namespaces", new String[0]));
  }

  @Override
  public String[][] listNamespaces(String[] namespace) {
    return namespaces(request("list namespaces", namespace));
  }

  private String[][] namespaces(Map<Object, Object> request) {
    Object[] found = ((List<?>) python.call(request)).toArray();
    String[][] made = new String[found.length][];
    for (int i = 0; i < made.length; i++) {
      made[i] = PythonProcess.texts(found[i]);
    }
    return made;
  }

  @Override
  @SuppressWarnings("unchecked") // JSON of texts
  public Map<String, String> loadNamespaceMetadata(String[] namespace) {
    return (Map<String, String>) python.call(request("describe namespace", namespace));
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {
    Map<Object, Object> request = request("create namespace", namespace);
    request.put("properties", metadata);
    python.call(request);
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    Map<Object, Object> request = request("alter namespace", namespace);
    Map<Object, Object> set = new LinkedHashMap<>();
    List<Object> removed = new ArrayList<>();
    for (NamespaceChange change : changes) {
      if (change instanceof NamespaceChange.SetProperty) {
        set.put(((NamespaceChange.SetProperty) change).property(), ((NamespaceChange.SetProperty) change).value());
      } else {
        removed.add(((NamespaceChange.RemoveProperty) change).property());
      }
    }
    request.put("set", set);
    request.put("removed", removed);
    python.call(request);
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    Map<Object, Object> request = request("drop namespace", namespace);
    request.put("cascade", Boolean.valueOf(cascade));
    return Boolean.TRUE.equals(python.call(request));
  }

  // Procedures

  @Override
  public UnboundProcedure loadProcedure(Identifier procedure) {
    return new SparkProcedure(python, (Map<?, ?>) python.call(request("load procedure", procedure)));
  }

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    Object[] found = ((List<?>) python.call(request("list procedures", namespace))).toArray();
    Identifier[] made = new Identifier[found.length];
    for (int i = 0; i < made.length; i++) {
      made[i] = Identifier.of(new String[] {"system"}, (String) found[i]);
    }
    return made;
  }

  // Functions

  /** As in Java's catalog, they are in the namespace system and in none. */
  private static boolean hasFunctions(String[] namespace) {
    return namespace.length == 0 || (namespace.length == 1 && namespace[0].equals("system"));
  }

  @Override
  public Identifier[] listFunctions(String[] namespace) {
    if (!hasFunctions(namespace)) {
      loadNamespaceMetadata(namespace); // throws if there is no such namespace
      return new Identifier[0];
    }
    String[] names = CatalogFunctions.names();
    Identifier[] made = new Identifier[names.length];
    for (int i = 0; i < made.length; i++) {
      made[i] = Identifier.of(namespace, names[i]);
    }
    return made;
  }

  @Override
  public UnboundFunction loadFunction(Identifier function) throws NoSuchFunctionException {
    if (!hasFunctions(function.namespace()) || !CatalogFunctions.has(function.name())) {
      throw new NoSuchFunctionException(function);
    }
    return new CatalogFunctions.Unbound(function.name(), (String) python.call(PythonProcess.request("version")));
  }
}
