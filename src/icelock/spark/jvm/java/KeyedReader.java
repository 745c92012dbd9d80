package icelock;

import java.io.Serializable;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/** Opens a file with its key, has the opened file checked, and leaves out its deleted rows. */
public class KeyedReader extends AbstractFunction1<Object, Object> implements Serializable {
  private static final long serialVersionUID = 1L;
  /** A bitmap of no positions: its number of parts, as 64 bits. */
  private static final byte[] NOTHING = new byte[8];

  @SuppressWarnings("serial") // Spark's functions are serializable
  private final Function1<?, ?> reader;
  private final boolean byFooter;
  private final int index;
  private final StructType whole;

  /**
   * @param reader Spark's, which gives the rows of a file
   * @param byFooter whether positions are counted from the footer, for batches of whole row groups
   * @param index the column with a row's position, which comes to the reader's if they are counted; less than 0: none
   * @param whole all columns if the one at index is to be left out, else null
   */
  public KeyedReader(Function1<?, ?> reader, boolean byFooter, int index, StructType whole) {
    this.reader = reader;
    this.byFooter = byFooter;
    this.index = index;
    this.whole = whole;
  }

  @Override
  @SuppressWarnings({"rawtypes", "unchecked"}) // Spark declares a function of files, Scala's is one of objects
  public Object apply(Object file) {
    PartitionedFile part = (PartitionedFile) file;
    String path = part.toPath().toString();
    byte[] key = (byte[]) part.otherConstantMetadataColumnValues().apply(PlannedFiles.KEY);
    QuietLogs.set();
    KeyOfThread.set(path, key, part.fileSize());
    try {
      Iterator<?> rows = (Iterator<?>) ((Function1) reader).apply(file);
      if (key.length > 0) {
        OpenedFile.check(rows, key, path);
      }
      Option<?> deleted = part.otherConstantMetadataColumnValues().get(PlannedFiles.DELETED);
      return new ReadErrors.Rows(live(rows, deleted), path, key.length > 0, KeyOfThread.conf());
    } catch (Throwable e) {
      Configuration conf = KeyOfThread.conf();
      KeyOfThread.unset(); // the storage may be asked about the file, and S3Files would answer by the manifest
      throw ReadErrors.thrown(ReadErrors.of(e, path, key.length > 0, conf));
    } finally {
      KeyOfThread.unset();
    }
  }

  private Iterator<?> live(Iterator<?> rows, Option<?> deleted) {
    byte[] positions = deleted.isEmpty() ? NOTHING : (byte[]) deleted.get();
    if (byFooter) {
      return deleted.isEmpty() && index < 0 ? rows : LiveRows.byFooter(rows, positions, index);
    }
    return deleted.isEmpty() && whole == null ? rows : LiveRows.byColumn(rows, positions, index, whole);
  }
}
