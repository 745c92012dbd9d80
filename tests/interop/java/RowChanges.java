import java.io.IOException;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.StringJoiner;
import java.util.UUID;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestReader;
import org.apache.iceberg.ManifestWriter;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RewriteManifests;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.deletes.EqualityDeleteWriter;
import org.apache.iceberg.deletes.PositionDelete;
import org.apache.iceberg.deletes.PositionDeleteWriter;
import org.apache.iceberg.encryption.EncryptedOutputFile;
import org.apache.iceberg.formats.FormatModelRegistry;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/** What Java Iceberg can write into a table and Spark's SQL never does. Every file gets a key of the table's own manager. */
public final class RowChanges {
  private RowChanges() {}

  /** Appends rows of types that Spark has no name for; one file. */
  public static void append(Table table, String format, List<Map<String, Object>> rows) throws IOException {
    EncryptedOutputFile output = output(table, format);
    DataWriter<Record> writer =
        FormatModelRegistry.<Record, Schema>dataWriteBuilder(FileFormat.fromString(format), Record.class, output)
            .schema(table.schema())
            .spec(table.spec())
            .keyMetadata(output.keyMetadata())
            .setAll(table.properties())
            .build();
    try (writer) {
      for (Map<String, Object> row : rows) {
        writer.write(record(table.schema(), row));
      }
    }
    table.newAppend().appendFile(writer.toDataFile()).commit();
  }

  /** Deletes the rows that equal one of {@code rows} in {@code columns}: in every partition if the table has none. */
  public static void equalityDelete(Table table, String format, List<String> columns, List<Map<String, Object>> rows)
      throws IOException {
    RowDelta delta = table.newRowDelta();
    for (DataFile like : onePerPartition(table)) {
      PartitionSpec spec = table.specs().get(like.specId());
      delta.addDeletes(equalityDeleteFile(table, format, columns, rows, spec, like));
    }
    delta.commit();
  }

  private static DeleteFile equalityDeleteFile(
      Table table, String format, List<String> columns, List<Map<String, Object>> rows, PartitionSpec spec, DataFile like)
      throws IOException {
    Schema schema = table.schema().select(columns);
    int[] ids = columns.stream().mapToInt(name -> table.schema().findField(name).fieldId()).toArray();
    EncryptedOutputFile output = output(table, format);
    EqualityDeleteWriter<Record> writer =
        FormatModelRegistry.<Record, Schema>equalityDeleteWriteBuilder(FileFormat.fromString(format), Record.class, output)
            .schema(schema)
            .keyMetadata(output.keyMetadata())
            .equalityFieldIds(ids)
            .spec(spec)
            .partition(like.partition())
            .build();
    try (writer) {
      for (Map<String, Object> row : rows) {
        writer.write(record(schema, row));
      }
    }
    return writer.toDeleteFile();
  }

  /** Deletes about half of the rows of the table's only data file, at random, so that the bitmap does not compress; returns its bytes. */
  public static long deleteHalf(Table table, long seed) throws IOException {
    DataFile file = dataFiles(table).get(0);
    OutputFileFactory files =
        OutputFileFactory.builderFor(table, 1, 1).format(FileFormat.PUFFIN).operationId(UUID.randomUUID().toString()).build();
    BaseDVFileWriter writer = new BaseDVFileWriter(files, path -> null);
    Random random = new Random(seed);
    try (writer) {
      for (long position = 0; position < file.recordCount(); position++) {
        if (random.nextBoolean()) {
          writer.delete(file.location(), position, table.spec(), file.partition());
        }
      }
    }
    RowDelta delta = table.newRowDelta();
    writer.result().deleteFiles().forEach(delta::addDeletes);
    delta.commit();
    return writer.result().deleteFiles().get(0).contentSizeInBytes();
  }

  /**
   * Replaces every deletion vector by a Parquet file of positions, which is what a table that was upgraded from version 2 has.
   *
   * <p>A row delta refuses such files in version 3, a rewrite of manifests does not look.
   */
  public static int positionDeletesForVectors(Table table) throws IOException {
    RewriteManifests rewrite = table.rewriteManifests();
    int replaced = 0;
    for (ManifestFile manifest : table.currentSnapshot().deleteManifests(table.io())) {
      PartitionSpec spec = table.specs().get(manifest.partitionSpecId());
      String path = table.location() + "/metadata/positions-" + UUID.randomUUID() + ".avro";
      ManifestWriter<DeleteFile> writer =
          ManifestFiles.writeDeleteManifest(3, spec, table.encryption().encrypt(table.io().newOutputFile(path)), null);
      try (writer; ManifestReader<DeleteFile> vectors = ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())) {
        for (DeleteFile vector : vectors) {
          DeleteFile file = positionDeleteFile(table, vector, spec);
          writer.existing(file, manifest.snapshotId(), vector.dataSequenceNumber(), vector.fileSequenceNumber());
          replaced++;
        }
      }
      rewrite.deleteManifest(manifest).addManifest(writer.toManifestFile());
    }
    rewrite.commit();
    return replaced;
  }

  private static DeleteFile positionDeleteFile(Table table, DeleteFile vector, PartitionSpec spec) throws IOException {
    EncryptedOutputFile output = output(table, "parquet");
    PositionDeleteWriter<Record> writer =
        FormatModelRegistry.<Record>positionDeleteWriteBuilder(FileFormat.PARQUET, output)
            .spec(spec)
            .keyMetadata(output.keyMetadata())
            .partition(vector.partition())
            .build();
    List<Long> positions = positionsOf(table, vector);
    try (writer) {
      PositionDelete<Record> delete = PositionDelete.create();
      for (long position : positions) {
        writer.write(delete.set(vector.referencedDataFile(), position));
      }
    }
    return writer.toDeleteFile();
  }

  private static List<Long> positionsOf(Table table, DeleteFile vector) {
    List<Long> positions = new ArrayList<>();
    new BaseDeleteLoader(file -> table.io().newInputFile(file))
        .loadPositionDeletes(List.of(vector), vector.referencedDataFile())
        .forEach(positions::add);
    return positions;
  }

  private static EncryptedOutputFile output(Table table, String format) {
    String path = table.location() + "/data/" + UUID.randomUUID() + "." + format;
    return table.encryption().encrypt(table.io().newOutputFile(path));
  }

  private static Record record(Schema schema, Map<String, Object> values) {
    Record record = GenericRecord.create(schema);
    for (Types.NestedField field : schema.columns()) {
      record.setField(field.name(), value(field.type().typeId(), values.get(field.name())));
    }
    return record;
  }

  /** Turns what Python sends (text for what it has no class for) into Iceberg's class of a type. */
  private static Object value(Type.TypeID type, Object value) {
    if (value == null) {
      return null;
    }
    switch (type) {
      case LONG:
        return ((Number) value).longValue();
      case TIME:
        return LocalTime.parse((String) value);
      default:
        return value;
    }
  }

  /** Reads a table by Iceberg's own reader, for types that Spark has no name for: one line a row. */
  public static List<String> read(Table table) throws IOException {
    List<String> rows = new ArrayList<>();
    try (CloseableIterable<Record> records = IcebergGenerics.read(table).build()) {
      for (Record record : records) {
        StringJoiner row = new StringJoiner("|");
        for (int i = 0; i < record.size(); i++) {
          row.add(String.valueOf(record.get(i)));
        }
        rows.add(row.toString());
      }
    }
    return rows;
  }

  private static List<DataFile> dataFiles(Table table) throws IOException {
    List<DataFile> files = new ArrayList<>();
    try (CloseableIterable<FileScanTask> tasks = table.newScan().planFiles()) {
      tasks.forEach(task -> files.add(task.file()));
    }
    return files;
  }

  private static List<DataFile> onePerPartition(Table table) throws IOException {
    List<DataFile> found = new ArrayList<>();
    for (DataFile file : dataFiles(table)) {
      if (found.stream().noneMatch(other -> other.specId() == file.specId() && other.partition().equals(file.partition()))) {
        found.add(file);
      }
    }
    return found;
  }
}
