package icelock;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.attribute.BasicFileAttributes;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/**
 * The local disk as the native scan reads it.
 *
 * Only regular files are opened: a named pipe would wait for a writer forever, and a device has no end. Checksum files are ignored:
 * Hadoop's own class believes .NAME.crc, which anyone who can write to storage can write. Encrypted files are authenticated anyway.
 */
public class LocalFiles extends RawLocalFileSystem {
  private static final int KIND = 0170000;
  private static final int DIRECTORY = 0040000;
  private static final int PIPE = 0010000;
  private static final int SOCKET = 0140000;
  private static final int CHARACTERS = 0020000;
  private static final int BLOCKS = 0060000;

  /** Makes a scan open local files with this class, whatever the session's settings and Hadoop's cache say. */
  static void install(Configuration conf) {
    conf.set("fs.file.impl", LocalFiles.class.getName());
    conf.setBoolean("fs.file.impl.disable.cache", true);
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    attributes(path); // fails with the reason; the other says "does not exist" of all
    return super.getFileStatus(path);
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    if (!attributes(path).isRegularFile()) {
      throw new Failure("icelock.errors.FormatError",
          path + " is " + kind(pathToFile(path)) + ", expected a file: it was not opened; restore the file from a backup", null);
    }
    try {
      return super.open(path, bufferSize);
    } catch (FileNotFoundException e) {
      // Java throws this for any file that it cannot open.
      if (!pathToFile(path).exists()) {
        throw e;
      }
      if (!Files.isReadable(pathToFile(path).toPath())) {
        throw new AccessDeniedException(path.toString());
      }
      throw new IOException(e.getMessage(), e);
    }
  }

  private BasicFileAttributes attributes(Path path) throws IOException {
    try {
      return Files.readAttributes(pathToFile(path).toPath(), BasicFileAttributes.class);
    } catch (NoSuchFileException e) {
      throw new FileNotFoundException(path + " does not exist");
    } catch (InvalidPathException e) {
      throw new Failure("icelock.errors.PolicyError",
          path + " cannot be opened: this JVM has " + System.getProperty("sun.jnu.encoding")
              + " for file names, which lacks letters of this one;"
              + " start Spark's JVMs with LC_ALL=C.UTF-8, or read with engine=\"python\"",
          e);
    }
  }

  private static String kind(File file) {
    int mode;
    try {
      mode = ((Integer) Files.getAttribute(file.toPath(), "unix:mode")).intValue() & KIND;
    } catch (Exception e) { // a platform without modes
      mode = file.isDirectory() ? DIRECTORY : 0;
    }
    switch (mode) {
      case DIRECTORY:
        return "a directory";
      case PIPE:
        return "a named pipe";
      case SOCKET:
        return "a socket";
      case CHARACTERS:
      case BLOCKS:
        return "a device";
      default:
        return "not a regular file";
    }
  }
}
