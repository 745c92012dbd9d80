package icelock;

import java.io.Serializable;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/** Opens a file with its key, has the opened file checked, and leaves out its deleted rows. */
public class KeyedReader extends AbstractFunction1<Object, Object> implements Serializable {
  private static final long serialVersionUID = 1L;
  /** In place of a column with the rows' positions: they are counted from the footer. */
  public static final int BY_FOOTER = -2;

  /** A bitmap of no positions: its number of parts, as 64 bits. */
  private static final byte[] NOTHING = new byte[8];

  @SuppressWarnings("serial") // Spark's functions are serializable
  private final Function1<?, ?> reader;
  private final int index;
  private final StructType whole;

  /**
   * @param reader Spark's, which gives the rows of a file
   * @param index the column with a row's position, or BY_FOOTER
   * @param whole all columns if the one at index is to be left out, else null
   */
  public KeyedReader(Function1<?, ?> reader, int index, StructType whole) {
    this.reader = reader;
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
    KeyOfThread.set(path, key);
    try {
      Iterator<?> rows = (Iterator<?>) ((Function1) reader).apply(file);
      if (key.length > 0) {
        OpenedFile.check(rows, key, path);
      }
      Option<?> deleted = part.otherConstantMetadataColumnValues().get(PlannedFiles.DELETED);
      return new ReadErrors.Rows(live(rows, deleted), path, key.length > 0, KeyOfThread.conf());
    } catch (Throwable e) {
      throw ReadErrors.thrown(ReadErrors.of(e, path, key.length > 0, KeyOfThread.conf()));
    } finally {
      KeyOfThread.unset();
    }
  }

  private Iterator<?> live(Iterator<?> rows, Option<?> deleted) {
    if (deleted.isEmpty() && whole == null) {
      return rows;
    }
    if (index == BY_FOOTER) {
      return LiveRows.byFooter(rows, (byte[]) deleted.get());
    }
    return LiveRows.byColumn(rows, deleted.isEmpty() ? NOTHING : (byte[]) deleted.get(), index, whole);
  }
}
