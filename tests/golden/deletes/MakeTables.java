import java.io.*; import java.math.BigDecimal; import java.nio.ByteBuffer; import java.time.*; import java.util.*;
import org.apache.iceberg.*; import org.apache.iceberg.catalog.*; import org.apache.iceberg.data.*; import org.apache.iceberg.data.Record; import org.apache.iceberg.deletes.*;
import org.apache.iceberg.encryption.*; import org.apache.iceberg.hive.HiveCatalog; import org.apache.iceberg.io.*; import org.apache.iceberg.types.Types; import org.apache.iceberg.types.Type;
import org.apache.iceberg.expressions.Expressions; import org.apache.iceberg.expressions.Literal;
import static org.apache.iceberg.types.Types.NestedField.*;

public class MakeTables {
  static HiveCatalog cat;
  static int task = 0;
  static Record rec(Schema s, Object... v) { GenericRecord r = GenericRecord.create(s); for (int i = 0; i < v.length; i++) r.set(i, v[i]); return r; }
  static PartitionKey key(Table t, PartitionSpec spec, Record r) { PartitionKey k = new PartitionKey(spec, t.schema()); k.partition(new InternalRecordWrapper(t.schema().asStruct()).wrap(r)); return k; }
  static StructLike part(PartitionSpec spec, Object... v) { PartitionData d = new PartitionData(spec.partitionType()); for (int i = 0; i < v.length; i++) d.set(i, v[i]); return d; }

  static DataFile data(Table t, FileFormat f, StructLike p, List<Record> rows) throws IOException {
    PartitionSpec spec = t.spec();
    OutputFileFactory off = OutputFileFactory.builderFor(t, 1, ++task).format(f).build();
    EncryptedOutputFile out = spec.isUnpartitioned() ? off.newOutputFile() : off.newOutputFile(spec, p);
    DataWriter<Record> w = new GenericFileWriterFactory.Builder(t).dataFileFormat(f).build().newDataWriter(out, spec, spec.isUnpartitioned() ? null : p);
    try (w) { for (Record r : rows) w.write(r); }
    return w.toDataFile();
  }
  static DeleteFile eq(Table t, FileFormat f, PartitionSpec spec, StructLike p, int[] ids, Schema schema, List<Record> rows) throws IOException {
    OutputFileFactory off = OutputFileFactory.builderFor(t, 1, ++task).format(f).defaultSpec(spec).build();
    EncryptedOutputFile out = spec.isUnpartitioned() ? off.newOutputFile() : off.newOutputFile(spec, p);
    EqualityDeleteWriter<Record> w = new GenericFileWriterFactory.Builder(t).deleteFileFormat(f).equalityFieldIds(ids).equalityDeleteRowSchema(schema).build()
       .newEqualityDeleteWriter(out, spec, spec.isUnpartitioned() ? null : p);
    try (w) { for (Record r : rows) w.write(r); }
    return w.toDeleteFile();
  }
  static List<DeleteFile> dvs(Table t, Map<DataFile, long[]> gone) throws IOException {
    OutputFileFactory off = OutputFileFactory.builderFor(t, 1, ++task).format(FileFormat.PUFFIN).build();
    BaseDVFileWriter w = new BaseDVFileWriter(off, path -> null);
    for (var e : gone.entrySet()) for (long pos : e.getValue()) w.delete(e.getKey().location(), pos, t.specs().get(e.getKey().specId()), e.getKey().partition());
    w.close();
    return w.result().deleteFiles();
  }
  static Map<String,String> props(String... more) { Map<String,String> m = new LinkedHashMap<>(); m.put("format-version","3"); m.put("encryption.key-id","keyA"); for (int i=0;i<more.length;i+=2) m.put(more[i],more[i+1]); return m; }

  static void eqTable(FileFormat f, String name) throws IOException {
    Schema s = new Schema(required(1,"id",Types.LongType.get()), optional(2,"cat",Types.StringType.get()), optional(3,"v",Types.DoubleType.get()), optional(4,"n",Types.IntegerType.get()), optional(5,"note",Types.StringType.get()));
    PartitionSpec spec = PartitionSpec.builderFor(s).identity("cat").build();
    Table t = cat.createTable(TableIdentifier.of("d", name), s, spec, props("write.format.default", f.name().toLowerCase()));
    Double[] vs = {null, Double.NaN, -0.0, 0.0, 1.5};
    AppendFiles a = t.newAppend();
    for (String c : new String[]{"a","b",null}) {
      List<Record> rows = new ArrayList<>();
      for (int i = 0; i < 20; i++) rows.add(rec(s, (long)(i + (c==null?40:c.equals("b")?20:0)), c, vs[i % 5], i % 3 == 0 ? null : i % 4, "note" + i % 6));
      a.appendFile(data(t, f, part(spec, c), rows));
    }
    a.commit();
    Schema byId = s.select("id"), byV = s.select("v"), byNV = s.select("n","v"), byNote = s.select("note");
    List<Record> d = new ArrayList<>();
    for (long i : new long[]{1, 3, 25, 999}) d.add(rec(byId, i));
    t.newRowDelta().addDeletes(eq(t, f, t.spec(), part(spec,"a"), new int[]{1}, byId, d)).commit();
    // the same ids again, later: they stay
    t.newAppend().appendFile(data(t, f, part(spec,"a"), List.of(rec(s,1L,"a",9.0,9,"again"), rec(s,3L,"a",9.0,9,"again")))).commit();
    t.newRowDelta().addDeletes(eq(t, f, t.spec(), part(spec,"b"), new int[]{3}, byV, List.of(rec(byV,(Object)null), rec(byV,Double.NaN), rec(byV,-0.0)))).commit();
    t.newRowDelta().addDeletes(eq(t, f, t.spec(), part(spec,(Object)null), new int[]{4,3}, byNV, List.of(rec(s.select("v","n"), 1.5, null), rec(s.select("v","n"), 0.0, 3)))).commit();
    t.newRowDelta().addDeletes(eq(t, f, t.spec(), part(spec,"a"), new int[]{5}, byNote, List.of(rec(byNote,"note5")))).commit();
    t.updateSchema().deleteColumn("note").renameColumn("v","w").updateColumn("n", Types.LongType.get()).addColumn("extra", Types.IntegerType.get()).commit();
    t.refresh();
    t.updateSpec().removeField("cat").commit();
    t.refresh();
    Schema s2 = t.schema();
    PartitionSpec none = t.spec();
    System.out.println(name + " spec now " + none + " unpartitioned " + none.isUnpartitioned() + " schema " + s2);
    t.newAppend().appendFile(data(t, f, null, List.of(rec(s2,100L,"b",1.0,2L,5), rec(s2,101L,"a",null,null,null), rec(s2,2L,"a",2.0,2L,7)))).commit();
    Schema byId2 = s2.select("id"), byExtra = s2.select("extra","id");
    t.newRowDelta().addDeletes(eq(t, f, t.spec(), null, new int[]{1}, byId2, List.of(rec(byId2,2L), rec(byId2,22L), rec(byId2,44L)))).commit();
    Schema ex = s2.select("id","extra");
    t.newRowDelta().addDeletes(eq(t, f, t.spec(), null, new int[]{1,6}, ex, List.of(rec(ex,4L,null), rec(ex,100L,null), rec(ex,101L,null), rec(ex,6L,1)))).commit();
    t.newAppend().appendFile(data(t, f, null, List.of(rec(s2,2L,"late",2.0,2L,7)))).commit();
    // deletion vectors on two live files of different specs, one Puffin file
    List<DataFile> files = new ArrayList<>();
    try (var tasks = t.newScan().planFiles()) { for (FileScanTask ft : tasks) files.add(ft.file()); }
    Map<DataFile,long[]> gone = new LinkedHashMap<>();
    for (DataFile x : files) if (x.recordCount() > 2) gone.put(x, new long[]{0, x.recordCount()-1});
    RowDelta rd = t.newRowDelta();
    for (DeleteFile dv : dvs(t, gone)) rd.addDeletes(dv);
    rd.commit();
  }

  static void typesTable() throws IOException {
    Schema s = new Schema(required(1,"id",Types.LongType.get()), optional(2,"b",Types.BooleanType.get()), optional(3,"i",Types.IntegerType.get()), optional(4,"f",Types.FloatType.get()), optional(5,"d",Types.DoubleType.get()),
      optional(6,"dec9",Types.DecimalType.of(9,2)), optional(7,"dec38",Types.DecimalType.of(38,10)), optional(8,"dt",Types.DateType.get()), optional(9,"tm",Types.TimeType.get()), optional(10,"ts",Types.TimestampType.withoutZone()), optional(11,"tstz",Types.TimestampType.withZone()),
      optional(14,"s",Types.StringType.get()), optional(15,"u",Types.UUIDType.get()), optional(16,"fx",Types.FixedType.ofLength(3)), optional(17,"bin",Types.BinaryType.get()),
      optional(18,"im",Types.MapType.ofOptional(19,20,Types.IntegerType.get(),Types.StringType.get())), optional(21,"sm",Types.MapType.ofOptional(22,23,Types.StringType.get(),Types.LongType.get())),
      optional(24,"lst",Types.ListType.ofOptional(25,Types.StructType.of(optional(26,"p",Types.LongType.get()), optional(27,"q",Types.UUIDType.get())))),
      optional(29,"stm",Types.MapType.ofOptional(30,31,Types.StructType.of(required(32,"k",Types.IntegerType.get())),Types.DecimalType.of(5,1))));
    Table t = cat.createTable(TableIdentifier.of("d","types"), s, PartitionSpec.unpartitioned(), props());
    UUID u = UUID.fromString("f79c3e09-677c-4bbd-a479-3f349cb785e7");
    Record li = rec(new Schema(s.findType(25).asStructType().fields()), 5L, u), lin = rec(new Schema(s.findType(25).asStructType().fields()), null, null);
    Record mk = rec(new Schema(s.findType(30).asStructType().fields()), 4);
    LocalDateTime ldt = LocalDateTime.of(2024,1,2,3,4,5,6000), ldtn = LocalDateTime.of(1969,12,31,23,59,59,999999999);
    Map<Integer,String> im = new LinkedHashMap<>(); im.put(1,"one"); im.put(2,null);
    Map<String,Long> sm = new LinkedHashMap<>(); sm.put("a",1L); sm.put("b",null);
    Map<Record,BigDecimal> stm = new LinkedHashMap<>(); stm.put(mk, new BigDecimal("-0.5"));
    List<Record> rows = new ArrayList<>();
    rows.add(rec(s, 1L, true, -1, 0.5f, 0.1, new BigDecimal("-1.29"), new BigDecimal("1234567890123456789012345678.0123456789"), LocalDate.of(1969,12,31), LocalTime.of(23,59,59,999999000), ldt, ldt.atOffset(ZoneOffset.UTC), "é𝄞", u, new byte[]{1,2,3}, ByteBuffer.wrap(new byte[]{0,-1}), im, sm, Arrays.asList(li, null, lin), stm));
    rows.add(rec(s, 2L));
    t.newAppend().appendFile(data(t, FileFormat.PARQUET, null, rows)).commit();
    List<Record> rows2 = new ArrayList<>();
    for (Record r : rows) { Record c = r.copy(); c.set(0, ((Long) r.get(0)) + 10); rows2.add(c); }
    t.newAppend().appendFile(data(t, FileFormat.AVRO, null, rows2)).commit();
    t.updateSchema().addColumn("dd", Types.DateType.get(), "doc", Literal.of("2024-02-03").to(Types.DateType.get())).addColumn("du", Types.UUIDType.get(), null, Literal.of(u)).addColumn("dn", Types.DecimalType.of(9,2), null, Literal.of(new BigDecimal("7.25"))).addColumn("dts", Types.TimestampType.withZone(), null, Literal.of("2024-01-02T03:04:05+00:00").to(Types.TimestampType.withZone())).addColumn("dbin", Types.BinaryType.get(), null, Literal.of(ByteBuffer.wrap(new byte[]{0,-1}))).commit();
  }

  public static void main(String[] args) throws Exception {
    cat = new HiveCatalog();
    org.apache.hadoop.conf.Configuration conf = new org.apache.hadoop.conf.Configuration();
    cat.setConf(conf);
    cat.initialize("ice", Map.of("uri", args[0], "warehouse", "file:/tmp/iceberg-golden", "encryption.kms-impl", "TestKms", "testkms.log", args[1]));
    try { cat.createNamespace(Namespace.of("d"), Map.of("location", "file:/tmp/iceberg-golden")); } catch (Exception e) { System.out.println(e); }
    for (String n : args[2].split(",")) {
      if (n.equals("eqp")) eqTable(FileFormat.PARQUET, "eq_parquet");
      if (n.equals("eqa")) eqTable(FileFormat.AVRO, "eq_avro");
      if (n.equals("types")) typesTable();
    }
    System.out.println("done");
    System.exit(0);
  }
}
