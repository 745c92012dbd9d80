package icelock;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Iterator;
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
 * What Spark's reader of an encrypted file has made of its footer, looked at before it gives a row. Compiled in a running session by
 * native.py; raw types, as Janino knows no generics.
 *
 * Parquet believes the file about its algorithm, in bytes that nothing authenticates (ADR 0013). It is not these bytes that are looked at, since
 * storage may answer a second read otherwise, but the decryptors that the reader has made of them, and will use.
 */
public class OpenedFile {
  private static final String HOW = ": the file was changed, or it is the work of a writer that chose otherwise; restore it from a backup, read a"
      + " snapshot that does not need it, or have it written again";
  private static final int MOST_STEPS = 64;
  private static final String[] OURS = {"scala.collection.", "org.apache.spark.sql.execution.datasources.", "org.apache.parquet.hadoop."};
  private static final Map FIELDS = new ConcurrentHashMap();
  private static final Field FILE = file();

  /** Refuses a file whose pages are not all under AES_GCM_V1, or that has another length than its key metadata says. */
  static void check(Object rows, byte[] keyMetadata, String path) {
    ParquetFileReader reader = reader(rows);
    checkAlgorithm(reader, path);
    checkLength(reader, keyMetadata, path);
  }

  private static void checkAlgorithm(ParquetFileReader reader, String path) {
    InternalFileDecryptor decryptor = reader.getFileMetaData().getFileDecryptor();
    if (decryptor == null) {
      throw new ParquetCryptoRuntimeException(path + " failed authentication: it is not encrypted, but its key metadata says that it is" + HOW);
    }
    List blocks = reader.getFooter().getBlocks();
    if (blocks.isEmpty()) {
      return;
    }
    // Columns have one setup for all row groups.
    Iterator columns = ((BlockMetaData) blocks.get(0)).getColumns().iterator();
    while (columns.hasNext()) {
      checkColumn(decryptor, (ColumnChunkMetaData) columns.next(), path);
    }
  }

  private static void checkColumn(InternalFileDecryptor decryptor, ColumnChunkMetaData column, String path) {
    InternalColumnDecryptionSetup setup;
    try {
      setup = decryptor.getColumnSetup(column.getPath());
    } catch (ParquetCryptoRuntimeException e) {
      return; // under a key of its own, without which Parquet will not read it
    }
    if (!setup.isEncrypted()) {
      throw new ParquetCryptoRuntimeException(path + " failed authentication: its column " + column.getPath() + " is not encrypted" + HOW);
    }
    if (!(setup.getDataDecryptor() instanceof AesGcmDecryptor)) {
      throw new ParquetCryptoRuntimeException(
          path
              + " failed authentication: it names AES_GCM_CTR_V1 as its algorithm, which leaves pages without authentication. Encrypted Iceberg"
              + " files have AES_GCM_V1"
              + HOW);
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
            path + " failed authentication: it has " + found + " bytes on storage, its key metadata says " + expected + HOW);
      }
    } catch (IOException e) {
      throw new ParquetCryptoRuntimeException("the key metadata of " + path + " cannot be read", e);
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Returns Parquet's reader behind an iterator of Spark's: of batches, or of rows, which may be mapped, joined or numbered on their way. */
  static ParquetFileReader reader(Object rows) {
    List seen = new ArrayList();
    seen.add(rows);
    for (int i = 0; i < seen.size() && i < MOST_STEPS; i++) {
      Object owner = seen.get(i);
      if (owner instanceof ParquetFileReader) {
        return (ParquetFileReader) owner;
      }
      Field[] fields = fields(owner.getClass());
      for (int j = 0; j < fields.length; j++) {
        Object value = get(fields[j], owner);
        if (value != null && ours(value.getClass()) && !contains(seen, value)) {
          seen.add(value);
        }
      }
    }
    throw new IllegalStateException("this Spark keeps its Parquet readers otherwise; read icelock tables by engine=\"python\"");
  }

  private static boolean contains(List seen, Object value) {
    for (int i = 0; i < seen.size(); i++) {
      if (seen.get(i) == value) {
        return true;
      }
    }
    return false;
  }

  private static boolean ours(Class kind) {
    for (int i = 0; i < OURS.length; i++) {
      if (kind.getName().startsWith(OURS[i])) {
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

  private static Field[] fields(Class kind) {
    Field[] known = (Field[]) FIELDS.get(kind);
    if (known == null) {
      List found = new ArrayList();
      for (Class each = kind; each != null && ours(each); each = each.getSuperclass()) {
        Field[] declared = each.getDeclaredFields();
        for (int i = 0; i < declared.length; i++) {
          if (!declared[i].getType().isPrimitive() && !Modifier.isStatic(declared[i].getModifiers())) {
            declared[i].setAccessible(true);
            found.add(declared[i]);
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
