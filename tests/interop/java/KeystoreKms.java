import java.io.FileInputStream;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.security.KeyStore;
import java.util.Collections;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.iceberg.encryption.Ciphers;
import org.apache.iceberg.encryption.KeyManagementClient;

/**
 * What Iceberg's {@code KeyStoreKmsClient} does, with the JDK's keystore and Iceberg's ciphers: that class is in Iceberg's own tests only, and
 * in no artifact. It takes the password from the environment; here, where the JVM is running already, it is a system property.
 */
public class KeystoreKms implements KeyManagementClient {
  // Java's writers carry the client to executors, so it has to be serializable.
  private final Map<String, byte[]> masterKeys = new HashMap<>();

  @Override
  public void initialize(Map<String, String> properties) {
    char[] password = System.getProperty("KEYSTORE_PASSWORD").toCharArray();
    try (InputStream in = new FileInputStream(properties.get("kms.client.keystore.path"))) {
      KeyStore keyStore = KeyStore.getInstance("PKCS12");
      keyStore.load(in, password);
      for (String alias : Collections.list(keyStore.aliases())) {
        masterKeys.put(alias, keyStore.getKey(alias, password).getEncoded());
      }
    } catch (Exception e) {
      throw new IllegalArgumentException(e);
    }
  }

  @Override
  public ByteBuffer wrapKey(ByteBuffer key, String wrappingKeyId) {
    return ByteBuffer.wrap(new Ciphers.AesGcmEncryptor(master(wrappingKeyId)).encrypt(copy(key), null));
  }

  @Override
  public ByteBuffer unwrapKey(ByteBuffer wrappedKey, String wrappingKeyId) {
    return ByteBuffer.wrap(new Ciphers.AesGcmDecryptor(master(wrappingKeyId)).decrypt(copy(wrappedKey), null));
  }

  private byte[] master(String id) {
    byte[] key = masterKeys.get(id.toLowerCase(Locale.ROOT));
    if (key == null) {
      throw new IllegalArgumentException("no master key " + id);
    }
    return key;
  }

  private static byte[] copy(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.duplicate().get(bytes);
    return bytes;
  }
}
