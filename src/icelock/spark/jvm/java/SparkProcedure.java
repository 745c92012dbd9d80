package icelock;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** A procedure of a catalog, which Python runs. Its parameters and the columns of its result are known before. */
public class SparkProcedure implements UnboundProcedure, BoundProcedure {
  private final PythonProcess python;
  private final Map<?, ?> described;

  /**
   * @param described name, its catalog, description, parameters (name, type, and its default in SQL or null) and result (columns in DDL)
   */
  SparkProcedure(PythonProcess python, Map<?, ?> described) {
    this.python = python;
    this.described = described;
  }

  @Override
  public String name() {
    return (String) described.get("name");
  }

  @Override
  public String description() {
    return (String) described.get("description");
  }

  @Override
  public BoundProcedure bind(StructType input) {
    return this;
  }

  @Override
  public boolean isDeterministic() {
    return false;
  }

  @Override
  public ProcedureParameter[] parameters() {
    Object[] given = ((List<?>) described.get("parameters")).toArray();
    ProcedureParameter[] made = new ProcedureParameter[given.length];
    for (int i = 0; i < made.length; i++) {
      Object[] parts = ((List<?>) given[i]).toArray();
      ProcedureParameter.Builder builder = ProcedureParameter.in((String) parts[0], DataType.fromDDL((String) parts[1]));
      made[i] = parts[2] == null ? builder.build() : builder.defaultValue((String) parts[2]).build();
    }
    return made;
  }

  @Override
  @SuppressWarnings({"cast", "unchecked"}) // Janino does not cast what generic methods return
  public Iterator<Scan> call(InternalRow input) {
    ProcedureParameter[] parameters = parameters();
    Map<Object, Object> arguments = new LinkedHashMap<>();
    for (int i = 0; i < parameters.length; i++) {
      arguments.put(
          parameters[i].name(), input.isNullAt(i) ? null : json(input.get(i, parameters[i].dataType()), parameters[i].dataType()));
    }
    Map<Object, Object> request = PythonProcess.request("call");
    request.put("catalog", described.get("catalog"));
    request.put("procedure", described.get("name"));
    request.put("arguments", arguments);
    List<?> rows = (List<?>) python.call(request);
    List<Scan> results = new ArrayList<>();
    results.add(new Rows(StructType.fromDDL((String) described.get("result")), rows));
    return results.iterator();
  }

  private static Object json(Object value, DataType type) {
    if (type instanceof ArrayType) {
      List<Object> made = new ArrayList<>();
      DataType element = ((ArrayType) type).elementType();
      for (int i = 0; i < ((ArrayData) value).numElements(); i++) {
        made.add(json(((ArrayData) value).get(i, element), element));
      }
      return made;
    }
    if (type instanceof MapType) {
      Map<Object, Object> made = new LinkedHashMap<>();
      Object[] keys = ((List<?>) json(((MapData) value).keyArray(), new ArrayType(((MapType) type).keyType(), true))).toArray();
      Object[] values = ((List<?>) json(((MapData) value).valueArray(), new ArrayType(((MapType) type).valueType(), true))).toArray();
      for (int i = 0; i < keys.length; i++) {
        made.put(keys[i], values[i]);
      }
      return made;
    }
    return value instanceof UTF8String ? value.toString() : value;
  }

  /** The rows of a result. */
  public static class Rows implements LocalScan {
    private final StructType schema;
    private final List<?> rows;

    Rows(StructType schema, List<?> rows) {
      this.schema = schema;
      this.rows = rows;
    }

    @Override
    public StructType readSchema() {
      return schema;
    }

    @Override
    public InternalRow[] rows() {
      InternalRow[] made = new InternalRow[rows.size()];
      for (int i = 0; i < made.length; i++) {
        Object[] values = ((List<?>) rows.get(i)).toArray();
        for (int column = 0; column < values.length; column++) {
          values[column] = internal(values[column], schema.apply(column).dataType());
        }
        made[i] = new GenericInternalRow(values);
      }
      return made;
    }

    private static Object internal(Object value, DataType type) {
      if (value instanceof String) {
        return UTF8String.fromString((String) value);
      }
      return value instanceof Integer && type instanceof LongType ? Long.valueOf(((Integer) value).longValue()) : value;
    }
  }
}
