import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.types.Types;

/**
 * Loads a table through one of Java Iceberg's own catalogs, prints its metadata as Java writes it, sets a property, adds a column, and
 * prints it again.
 *
 * <p>Arguments: class of the catalog, its name, its uri, its warehouse, the table.
 */
public class JavaClient {
  public static void main(String[] args) {
    Map<String, String> properties =
        Map.of("uri", args[2], "warehouse", args[3], "jdbc.schema-version", "V1", "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO");
    Catalog catalog = CatalogUtil.loadCatalog(args[0], args[1], properties, new Configuration());
    Table table = catalog.loadTable(TableIdentifier.parse(args[4]));
    print(table);
    table.updateProperties().set("java", "was here").commit();
    table.updateSchema().addColumn("added", Types.LongType.get()).commit();
    print(catalog.loadTable(TableIdentifier.parse(args[4])));
    System.exit(0);
  }

  private static void print(Table table) {
    System.out.println(TableMetadataParser.toJson(((HasTableOperations) table).operations().current()));
  }
}
