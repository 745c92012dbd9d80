import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.io.CloseableIterable;

/** Plans one table once, in a JVM of its own: prints the number of files, nanoseconds of planning, and the most memory it had in kB. */
public class PlanOnce {
  public static void main(String[] args) throws Exception {
    Map<String, String> properties =
        Map.of("uri", args[0], "warehouse", args[1], "encryption.kms-impl", "InteropKms", "catalog-impl", "org.apache.iceberg.hive.HiveCatalog");
    Catalog catalog = CatalogUtil.buildIcebergCatalog("ice", properties, new Configuration());
    Table table = catalog.loadTable(TableIdentifier.parse(args[2]));
    long loaded = System.nanoTime();
    int files = 0;
    try (CloseableIterable<FileScanTask> tasks = table.newScan().planFiles()) {
      for (FileScanTask task : tasks) {
        files += task.file().keyMetadata() == null ? 0 : 1;
      }
    }
    long took = System.nanoTime() - loaded;
    String memory =
        Files.readAllLines(Path.of("/proc/self/status")).stream().filter(line -> line.startsWith("VmHWM")).findFirst().orElseThrow();
    System.out.println(files + " " + took + " " + memory.replaceAll("[^0-9]", ""));
    System.exit(0);
  }
}
