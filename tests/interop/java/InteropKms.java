import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.iceberg.encryption.Ciphers;
import org.apache.iceberg.encryption.KeyManagementClient;

/**
 * The KMS of the interop tests on Java's side: icelock's {@code memory} KMS with the same two master keys.
 *
 * <p>A wrapped key is {@code nonce(12) | ciphertext | tag(16)}, AES-GCM under the master key, without AAD.
 */
public class InteropKms implements KeyManagementClient {
  private static final Map<String, String> KEYS = Map.of("keyA", "0123456789012345", "keyB", "1123456789012345");

  @Override
  public void initialize(Map<String, String> properties) {
    // the keys are fixed
  }

  @Override
  public ByteBuffer wrapKey(ByteBuffer key, String wrappingKeyId) {
    return ByteBuffer.wrap(new Ciphers.AesGcmEncryptor(master(wrappingKeyId)).encrypt(copy(key), null));
  }

  @Override
  public ByteBuffer unwrapKey(ByteBuffer wrappedKey, String wrappingKeyId) {
    return ByteBuffer.wrap(new Ciphers.AesGcmDecryptor(master(wrappingKeyId)).decrypt(copy(wrappedKey), null));
  }

  private static byte[] master(String id) {
    String key = KEYS.get(id);
    if (key == null) {
      throw new IllegalArgumentException("no master key " + id);
    }
    return key.getBytes(StandardCharsets.UTF_8);
  }

  private static byte[] copy(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.duplicate().get(bytes);
    return bytes;
  }
}
