import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/**
 * Iceberg's own REST catalog server for tests: loopback only, on a port that the system chooses and that is printed on standard output.
 *
 * <p>Arguments: JDBC address of its database, warehouse folder. It ends when standard input does.
 */
public class RestMain {
  public static void main(String[] args) throws Exception {
    JdbcCatalog catalog = new JdbcCatalog();
    catalog.setConf(new Configuration());
    catalog.initialize(
        "rest",
        Map.of(
            "uri", args[0],
            "warehouse", args[1],
            "jdbc.schema-version", "V1",
            "clients", "1", // sqlite has one writer; a second connection would get "database is locked"
            "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO"));
    ServletContextHandler context = new ServletContextHandler();
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    Server server = new Server(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 0));
    server.setHandler(context);
    server.start();
    Thread parent = new Thread(RestMain::waitForParent, "parent");
    parent.setDaemon(true);
    parent.start();
    System.out.println("port " + server.getURI().getPort());
    System.out.flush();
    server.join();
  }

  private static void waitForParent() {
    try {
      while (System.in.read() >= 0) {
        // nothing is sent; only the end counts
      }
    } catch (java.io.IOException e) {
      // the end, too
    }
    Runtime.getRuntime().halt(0);
  }
}
