import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/**
 * How fast a JVM decrypts AES-GCM from its start on, in MB/s of ten MiB each: {@code java CipherStart.java BYTES_OF_A_PAGE}.
 *
 * Until its compiler has seen the cipher called some hundred times, it runs Java's code for it in place of the processor's instructions.
 */
public class CipherStart {
  private static final int ROUNDS = 40;

  public static void main(String[] arguments) throws Exception {
    int size = Integer.parseInt(arguments[0]);
    SecretKeySpec key = new SecretKeySpec(new byte[16], "AES");
    GCMParameterSpec nonce = new GCMParameterSpec(128, new byte[12]);
    Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
    cipher.init(Cipher.ENCRYPT_MODE, key, nonce);
    byte[] page = cipher.doFinal(new byte[size]);
    int pages = Math.max(1, (10 << 20) / size);
    for (int round = 0; round < ROUNDS; round++) {
      long began = System.nanoTime();
      for (int i = 0; i < pages; i++) {
        cipher.init(Cipher.DECRYPT_MODE, key, nonce);
        cipher.doFinal(page);
      }
      System.out.print(Math.round(1e3 * pages * size / (System.nanoTime() - began)) + " ");
    }
    System.out.println();
  }
}
