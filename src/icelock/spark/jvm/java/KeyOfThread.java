package icelock;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.crypto.DecryptionPropertiesFactory;
import org.apache.parquet.crypto.FileDecryptionProperties;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;

/** Tells Parquet the key of the file that this thread opens, and refuses any other file. */
public class KeyOfThread implements DecryptionPropertiesFactory {
  private static final ThreadLocal<Object[]> CURRENT = new ThreadLocal<>();

  static void set(String path, byte[] keyMetadata, long length) {
    CURRENT.set(new Object[] {path, keyMetadata, null, Long.valueOf(length)});
  }

  /** Returns the length of the encrypted file that this thread opens, by its manifest, or less than 0 if it opens another. */
  static long length(Path path) {
    Object[] current = current();
    boolean known = current != null && ((byte[]) current[1]).length > 0 && path.toString().equals(current[0]);
    return known ? ((Long) current[3]).longValue() : -1;
  }

  /** Returns the configuration that the file was opened with, or null if Parquet did not get that far. */
  static Configuration conf() {
    Object[] current = current();
    return current == null ? null : (Configuration) current[2];
  }

  static void unset() {
    CURRENT.remove();
  }

  @Override
  public FileDecryptionProperties getFileDecryptionProperties(Configuration conf, Path path) throws ParquetCryptoRuntimeException {
    Object[] current = current();
    if (current == null || !path.toString().equals(current[0])) {
      throw new ParquetCryptoRuntimeException("icelock has no key for " + path + ": it is not the file that this task was given");
    }
    current[2] = conf;
    byte[] keyMetadata = (byte[]) current[1];
    if (keyMetadata.length == 0) {
      return null; // a plain file, which the catalog's policy allows
    }
    try {
      BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(keyMetadata, 1, keyMetadata.length - 1, null);
      byte[] key = bytes(decoder.readBytes(null));
      FileDecryptionProperties.Builder builder = FileDecryptionProperties.builder().withFooterKey(key);
      if (decoder.readIndex() == 1) {
        builder.withAADPrefix(bytes(decoder.readBytes(null)));
      }
      return builder.build();
    } catch (IOException e) {
      throw new ParquetCryptoRuntimeException("the key metadata of " + path + " cannot be read", e);
    }
  }

  @SuppressWarnings("cast") // Janino does not cast what a generic method returns
  private static Object[] current() {
    return (Object[]) CURRENT.get();
  }

  private static byte[] bytes(ByteBuffer buffer) {
    byte[] found = new byte[buffer.remaining()];
    buffer.get(found);
    return found;
  }
}
