package icelock;

import java.io.Closeable;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedByInterruptException;
import java.nio.file.AccessDeniedException;
import java.security.GeneralSecurityException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.AccessControlException;
import org.apache.parquet.crypto.KeyAccessDeniedException;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * What the errors of Spark's Parquet reader mean for a file.
 *
 * Each file has a key of its own, so what does not authenticate was changed. Some bytes are read before they are authenticated: magic,
 * footer length, lengths of modules. If Parquet finds them wrong, they were changed too. A storage error becomes Python's error of that
 * kind, with the name of the file. Errors of Spark and of the JVM, and what stops a task, are not changed.
 */
public class ReadErrors {
  private static final int DEEP = 50;
  private static final String INTEGRITY = "icelock.errors.IntegrityError";
  private static final String FORMAT = "icelock.errors.FormatError";
  private static final String KEY = "icelock.errors.KeyUnavailableError";
  private static final String RESTORE = "restore it from a backup, or roll the table back";
  private static final Set<?> OF_BYTES = new HashSet<Object>(Arrays.asList(new Object[] {IOException.class, EOFException.class,
      RuntimeException.class, IllegalArgumentException.class, NegativeArraySizeException.class, IndexOutOfBoundsException.class,
      ArrayIndexOutOfBoundsException.class, java.nio.BufferUnderflowException.class}));

  private ReadErrors() {}

  /** Returns the error to throw instead of another: a Failure, or that error itself. */
  static Throwable of(Throwable error, String path, boolean encrypted, Configuration conf) {
    Throwable root = error;
    Throwable ofStorage = null; // S3A's errors are IOExceptions whose causes are AWS's own
    boolean authentic = true;
    Throwable each = error;
    for (int i = 0; i < DEEP && each != null; i++) {
      if (each instanceof Failure || stops(each)) {
        return error;
      }
      Failure known = known(each, path, error);
      if (known != null) {
        return known;
      }
      authentic = authentic && !(each instanceof ParquetCryptoRuntimeException) && !(each instanceof GeneralSecurityException);
      ofStorage = each instanceof IOException ? each : ofStorage;
      root = each;
      each = each.getCause();
    }
    if (!authentic) {
      return encrypted ? changed(root, path, error)
                       : new Failure(KEY,
                             path + " is encrypted, but its manifest entry has no key metadata: it "
                                 + "replaced a plain file; " + RESTORE,
                             error);
    }
    if (ofParquet(root) && reachable(path, conf)) {
      return encrypted
          ? new Failure(
                INTEGRITY, path + " is damaged: bytes were changed or cut, or it was replaced (" + line(root) + "); " + RESTORE, error)
          : new Failure(FORMAT, path + " is a damaged plain Parquet file, or not one at all (" + line(root) + "); " + RESTORE, error);
    }
    return ofStorage == null ? error
                             : new Failure("builtins.OSError",
                                   path + " could not be read (" + line(ofStorage) + "): the storage failed; try again later", error);
  }

  /** Whether an error ends a task or a JVM, and says nothing of the file. */
  private static boolean stops(Throwable error) {
    return error instanceof InterruptedException || (error instanceof InterruptedIOException && !(error instanceof SocketTimeoutException))
        || error instanceof ClosedByInterruptException || error instanceof Error;
  }

  /** Returns what an error of this class means, or null. */
  private static Failure known(Throwable each, String path, Throwable error) {
    if (each instanceof FileNotFoundException || each instanceof java.nio.file.NoSuchFileException) {
      return new Failure("builtins.FileNotFoundError",
          path + " is not there: its snapshot was expired meanwhile, or the file was removed; "
              + "read the table again",
          error);
    }
    if (each instanceof AccessDeniedException || each instanceof AccessControlException) {
      return new Failure(
          "builtins.PermissionError", path + " may not be read by this executor's user (" + line(each) + "): grant it access", error);
    }
    if (each instanceof ChecksumException) {
      return new Failure(
          INTEGRITY, path + " is damaged: its bytes do not match its storage's checksum (" + line(each) + "); " + RESTORE, error);
    }
    if (each instanceof KeyAccessDeniedException) {
      return new Failure(KEY,
          path + " has columns under keys of their own, which Iceberg does not support: "
              + "select other columns, or rewrite the file with one key",
          error);
    }
    return null;
  }

  private static Failure changed(Throwable root, String path, Throwable error) {
    String said = String.valueOf(root.getMessage());
    return said.startsWith(path)
        ? new Failure(INTEGRITY, said, error)
        : new Failure(INTEGRITY,
              path + " does not authenticate: it was changed, swapped, or replaced by a plain file, or its key metadata is another"
                  + " file's (" + line(root) + "); " + RESTORE,
              error);
  }

  private static String line(Throwable error) {
    String message = String.valueOf(error.getMessage());
    int end = message.indexOf('\n');
    return error.getClass().getSimpleName() + ": " + (end < 0 ? message : message.substring(0, end));
  }

  /** Whether Parquet found bytes wrong. */
  private static boolean ofParquet(Throwable root) {
    if (root.getClass().getName().startsWith("shaded.parquet.")) {
      return true;
    }
    if (!OF_BYTES.contains(root.getClass())) {
      return false;
    }
    StackTraceElement[] frames = root.getStackTrace();
    for (StackTraceElement frame : frames) {
      String name = frame.getClassName();
      if (!name.startsWith("java.") && !name.startsWith("jdk.") && !name.startsWith("sun.")) {
        return name.startsWith("org.apache.parquet.") || name.startsWith("shaded.parquet.")
            || (root instanceof EOFException && name.startsWith("org.apache.hadoop.fs."));
      }
    }
    return false;
  }

  /** Whether the storage answers now; if it does not, that was the cause. */
  private static boolean reachable(String path, Configuration conf) {
    try {
      Path at = new Path(path);
      at.getFileSystem(conf == null ? new Configuration() : conf).getFileStatus(at);
      return true;
    } catch (IOException e) {
      return false;
    }
  }

  /** Throws an error, checked or not. */
  static RuntimeException thrown(Throwable error) {
    org.apache.spark.unsafe.Platform.throwException(error);
    return new IllegalStateException(error);
  }

  /** The rows of a file, with its errors explained. */
  @SuppressWarnings({"rawtypes", "unchecked"}) // Janino makes no bridge methods
  public static class Rows extends AbstractIterator implements Closeable {
    private final Iterator<?> rows;
    private final String path;
    private final boolean encrypted;
    private final Configuration conf;

    Rows(Iterator<?> rows, String path, boolean encrypted, Configuration conf) {
      this.rows = rows;
      this.path = path;
      this.encrypted = encrypted;
      this.conf = conf;
    }

    @Override
    public boolean hasNext() {
      try {
        return rows.hasNext();
      } catch (Throwable e) {
        throw thrown(of(e, path, encrypted, conf));
      }
    }

    @Override
    public Object next() {
      try {
        return rows.next();
      } catch (Throwable e) {
        throw thrown(of(e, path, encrypted, conf));
      }
    }

    @Override
    public void close() throws IOException {
      if (rows instanceof Closeable) {
        ((Closeable) rows).close();
      }
    }
  }
}
