import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.encryption.EncryptedOutputFile;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.types.Types;

/**
 * Appends one data file a commit; there is no such file, and its making is not timed.
 *
 * <p>Reads commands, one a line, and answers each with milliseconds, one a commit: {@code append TABLE COUNT} and {@code race TABLE THREADS
 * COUNT}, where a commit that failed is written as a negative number. A table that is not there is made.
 */
public class CommitTimes {
  private static final Schema SCHEMA =
      new Schema(
          Types.NestedField.optional(1, "id", Types.LongType.get()),
          Types.NestedField.optional(2, "name", Types.StringType.get()),
          Types.NestedField.optional(3, "city", Types.StringType.get()));
  private static final Map<String, String> KEYED = Map.of("format-version", "3", "encryption.key-id", "keyA");

  private final Catalog catalog;

  private CommitTimes(Catalog catalog) {
    this.catalog = catalog;
  }

  public static void main(String[] args) throws Exception {
    Map<String, String> properties =
        Map.of("uri", args[0], "warehouse", args[1], "encryption.kms-impl", "InteropKms", "catalog-impl", "org.apache.iceberg.hive.HiveCatalog", "clients", "8");
    CommitTimes times = new CommitTimes(CatalogUtil.buildIcebergCatalog("ice", properties, new Configuration()));
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String[] words = line.split(" ");
      List<Double> took =
          words[0].equals("race")
              ? times.race(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]))
              : times.appends(times.table(words[1]), Integer.parseInt(words[2]));
      System.out.println(took.toString().replaceAll("[\\[\\],]", ""));
    }
    System.exit(0);
  }

  private Table table(String name) {
    TableIdentifier identifier = TableIdentifier.parse(name);
    return catalog.tableExists(identifier)
        ? catalog.loadTable(identifier)
        : catalog.createTable(identifier, SCHEMA, PartitionSpec.unpartitioned(), KEYED);
  }

  private List<Double> race(String name, int threads, int count) throws Exception {
    table(name);
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    List<Callable<List<Double>>> work = new ArrayList<>();
    for (int thread = 0; thread < threads; thread++) {
      work.add(() -> appends(catalog.loadTable(TableIdentifier.parse(name)), count));
    }
    List<Double> took = new ArrayList<>();
    for (Future<List<Double>> done : pool.invokeAll(work)) {
      took.addAll(done.get());
    }
    pool.shutdown();
    return took;
  }

  private static List<Double> appends(Table table, int count) {
    List<Double> took = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      DataFile file = file(table);
      long start = System.nanoTime();
      boolean made = true;
      try {
        table.newAppend().appendFile(file).commit();
      } catch (CommitFailedException e) {
        made = false;
      }
      double milliseconds = (System.nanoTime() - start) / 1e6;
      took.add(made ? milliseconds : -milliseconds);
    }
    return took;
  }

  private static DataFile file(Table table) {
    String path = table.locationProvider().newDataLocation(java.util.UUID.randomUUID() + ".parquet");
    EncryptedOutputFile output = table.encryption().encrypt(table.io().newOutputFile(path));
    ByteBuffer key = output.keyMetadata().buffer();
    return DataFiles.builder(table.spec())
        .withPath(path)
        .withFormat(FileFormat.PARQUET)
        .withFileSizeInBytes(1234)
        .withRecordCount(10)
        .withEncryptionKeyMetadata(key)
        .build();
  }
}
