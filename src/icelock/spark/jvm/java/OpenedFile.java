package icelock;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.parquet.crypto.AesGcmDecryptor;
import org.apache.parquet.crypto.InternalColumnDecryptionSetup;
import org.apache.parquet.crypto.InternalFileDecryptor;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.io.InputFile;

/**
 * Checks what Spark's reader made of an encrypted file's footer, before it returns a row.
 *
 * Parquet believes the file about its algorithm, in bytes that nothing authenticates (ADR 0013). The check is not of these bytes, as
 * storage may answer a second read differently, but of the decryptors that the reader made from them and will use.
 */
public class OpenedFile {
  private static final String HOW =
      ": the file was changed, or its writer chose another algorithm; restore it from a backup, read a snapshot"
      + " without it, or have it written again";
  private static final int MOST_STEPS = 64;
  private static final String[] OURS = {"scala.collection.", "org.apache.spark.sql.execution.datasources.", "org.apache.parquet.hadoop."};
  private static final Map<Class<?>, Field[]> FIELDS = new ConcurrentHashMap<>();
  private static final Field FILE = file();

  /** Refuses a file with pages that are not under AES_GCM_V1, or whose length differs from its key metadata's. */
  static void check(Object rows, byte[] keyMetadata, String path) {
    ParquetFileReader reader = reader(rows);
    checkAlgorithm(reader, path);
    checkLength(reader, keyMetadata, path);
  }

  private static void checkAlgorithm(ParquetFileReader reader, String path) {
    InternalFileDecryptor decryptor = reader.getFileMetaData().getFileDecryptor();
    if (decryptor == null) {
      throw new ParquetCryptoRuntimeException(path + " failed authentication: it is not encrypted, but has key metadata" + HOW);
    }
    List<?> blocks = reader.getFooter().getBlocks();
    if (blocks.isEmpty()) {
      return;
    }
    // Columns have one setup for all row groups.
    for (Object column : ((BlockMetaData) blocks.get(0)).getColumns()) {
      checkColumn(decryptor, (ColumnChunkMetaData) column, path);
    }
  }

  private static void checkColumn(InternalFileDecryptor decryptor, ColumnChunkMetaData column, String path) {
    InternalColumnDecryptionSetup setup;
    try {
      setup = decryptor.getColumnSetup(column.getPath());
    } catch (ParquetCryptoRuntimeException e) {
      return; // under a key of its own, which Parquet does not get, so it will not read the column
    }
    if (!setup.isEncrypted()) {
      throw new ParquetCryptoRuntimeException(path + " failed authentication: its column " + column.getPath() + " is not encrypted" + HOW);
    }
    if (!(setup.getDataDecryptor() instanceof AesGcmDecryptor)) {
      throw new ParquetCryptoRuntimeException(path
          + (" failed authentication: it names AES_GCM_CTR_V1 as its algorithm, which leaves pages without authentication. Encrypted "
              + "Iceberg")
          + " files have AES_GCM_V1" + HOW);
    }
  }

  private static void checkLength(ParquetFileReader reader, byte[] keyMetadata, String path) {
    try {
      BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(keyMetadata, 1, keyMetadata.length - 1, null);
      decoder.skipBytes();
      if (decoder.readIndex() == 1) {
        decoder.skipBytes();
      }
      if (FILE == null || decoder.readIndex() != 1) {
        return;
      }
      long expected = decoder.readLong();
      long found = ((InputFile) FILE.get(reader)).getLength();
      if (found != expected) {
        throw new ParquetCryptoRuntimeException(
            path + " failed authentication: it has " + found + " bytes on storage, but " + expected + " by its key metadata" + HOW);
      }
    } catch (IOException e) {
      throw new ParquetCryptoRuntimeException("the key metadata of " + path + " cannot be read", e);
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    }
  }

  /**
   * Returns Parquet's reader behind an iterator of Spark's: of batches, or of rows, which may be mapped, joined or numbered on their way.
   */
  static ParquetFileReader reader(Object rows) {
    List<Object> seen = new ArrayList<>();
    seen.add(rows);
    for (int i = 0; i < seen.size() && i < MOST_STEPS; i++) {
      Object owner = seen.get(i);
      if (owner instanceof ParquetFileReader) {
        return (ParquetFileReader) owner;
      }
      for (Field field : fields(owner.getClass())) {
        Object value = get(field, owner);
        if (value != null && ours(value.getClass()) && !contains(seen, value)) {
          seen.add(value);
        }
      }
    }
    throw new IllegalStateException("this Spark version keeps its Parquet readers elsewhere; read icelock tables by engine=\"python\"");
  }

  private static boolean contains(List<?> seen, Object value) {
    for (Object each : seen) {
      if (each == value) {
        return true;
      }
    }
    return false;
  }

  private static boolean ours(Class<?> kind) {
    for (String prefix : OURS) {
      if (kind.getName().startsWith(prefix)) {
        return true;
      }
    }
    return false;
  }

  private static Object get(Field field, Object owner) {
    try {
      return field.get(owner);
    } catch (IllegalAccessException e) {
      return null;
    }
  }

  @SuppressWarnings("cast") // Janino does not cast what a generic method returns
  private static Field[] fields(Class<?> kind) {
    Field[] known = (Field[]) FIELDS.get(kind);
    if (known == null) {
      List<Field> found = new ArrayList<>();
      for (Class<?> each = kind; each != null && ours(each); each = each.getSuperclass()) {
        for (Field field : each.getDeclaredFields()) {
          if (!field.getType().isPrimitive() && !Modifier.isStatic(field.getModifiers())) {
            field.setAccessible(true);
            found.add(field);
          }
        }
      }
      known = (Field[]) found.toArray(new Field[0]);
      FIELDS.put(kind, known);
    }
    return known;
  }

  private static Field file() {
    try {
      Field found = ParquetFileReader.class.getDeclaredField("file");
      found.setAccessible(true);
      return found;
    } catch (ReflectiveOperationException e) {
      return null;
    }
  }
}
