import java.net.InetAddress;
import java.net.InetSocketAddress;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.TSetIpAddressProcessor;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hadoop.hive.ql.txn.AcidHouseKeeperService;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * A Hive metastore for tests: loopback only, on a port that the system chooses and that is printed on standard output.
 *
 * <p>It ends when standard input does, so that it never outlives the process that started it. The tables of the lock
 * handler are made here, because the schema that DataNucleus creates lacks them.
 */
public class HmsMain {
  public static void main(String[] args) throws Exception {
    HiveConf conf = new HiveConf();
    TxnDbUtil.prepDb(conf);
    if (HiveConf.getBoolVar(conf, HiveConf.ConfVars.HIVE_COMPACTOR_INITIATOR_ON)) {
      // As HiveMetaStore does: it drops locks of clients that are gone.
      new AcidHouseKeeperService().start(conf);
    }
    TServerSocket socket = new TServerSocket(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 0));
    TThreadPoolServer.Args options =
        new TThreadPoolServer.Args(socket)
            .processor(new TSetIpAddressProcessor<>(HiveMetaStore.newRetryingHMSHandler("hive", conf, true)))
            .protocolFactory(new TBinaryProtocol.Factory());
    TThreadPoolServer server = new TThreadPoolServer(options);
    Thread parent = new Thread(HmsMain::waitForParent, "parent");
    parent.setDaemon(true);
    parent.start();
    System.out.println("port " + socket.getServerSocket().getLocalPort());
    System.out.flush();
    server.serve();
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
