package icelock;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.VectoredReadUtils;
import org.apache.hadoop.util.functional.FutureIO;
import org.apache.parquet.crypto.ParquetCryptoRuntimeException;

/**
 * An encrypted file on object storage whose length is known: a small one in one request, of a larger one the end with the footer.
 *
 * The first request is for one byte more than the file should have, so a file that is longer or shorter is noticed without asking for its
 * length.
 */
public class SizedFile extends FSInputStream implements StreamCapabilities {
  /** As long as a request takes, some MiB come. */
  private static final int SMALL = 1 << 20;
  private static final int FOOTER = 64 << 10;
  private final FSDataInputStream rest;
  private final byte[] end;
  private final long length;
  private final long start;
  private long position;

  /**
   * @param rest gives what is before the end, null if that is nothing
   * @param end the file's last bytes, and one more
   * @param length of the file
   */
  private SizedFile(FSDataInputStream rest, byte[] end, long length) {
    this.rest = rest;
    this.end = end;
    this.length = length;
    this.start = length - (end.length - 1);
  }

  /**
   * @param storage which has the file
   * @param path of the file
   * @param length of the file in bytes, by its manifest
   */
  @SuppressWarnings("cast") // Janino does not cast what a generic method returns
  static SizedFile open(FileSystem storage, Path path, long length) throws IOException {
    FutureDataInputStreamBuilder builder = storage.openFile(path);
    builder.opt(Options.OpenFileOptions.FS_OPTION_OPENFILE_LENGTH, Long.toString(length + 1));
    builder.opt(Options.OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY, Options.OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY_RANDOM);
    FSDataInputStream in = (FSDataInputStream) FutureIO.awaitFuture(builder.build());
    boolean kept = false;
    try {
      byte[] end = new byte[(int) (length > SMALL ? FOOTER : length) + 1];
      int found = read(in, length + 1 - end.length, end);
      if (found != end.length - 1) {
        throw new ParquetCryptoRuntimeException(path + " failed authentication: it has " + (found < end.length ? "fewer" : "more")
            + " than the " + length
            + " bytes on storage that its manifest states: the file was changed or cut; restore it from a backup, or roll the table"
            + " back");
      }
      kept = length > SMALL;
      return new SizedFile(kept ? in : null, end, length);
    } finally {
      if (!kept) {
        in.close();
      }
    }
  }

  /** Reads from a position until a buffer is full or the file ends; returns how many bytes came. */
  private static int read(FSDataInputStream in, long from, byte[] into) throws IOException {
    int found = 0;
    try {
      in.seek(from);
      int more = in.read(into, 0, into.length);
      while (more > 0) {
        found += more;
        more = in.read(into, found, into.length - found);
      }
      return found;
    } catch (EOFException e) { // what some storages answer where a file is shorter
      return found;
    }
  }

  @Override
  public int read(byte[] into, int offset, int count) throws IOException {
    if (count == 0) {
      return 0;
    }
    if (position >= length) {
      return -1;
    }
    int found;
    if (position < start) {
      rest.seek(position);
      found = rest.read(into, offset, (int) Math.min(count, start - position));
    } else {
      found = (int) Math.min(count, length - position);
      System.arraycopy(end, (int) (position - start), into, offset, found);
    }
    position += Math.max(found, 0);
    return found;
  }

  @Override
  public int read() throws IOException {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xFF;
  }

  @Override
  public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate) throws IOException {
    if (rest == null) {
      VectoredReadUtils.readVectored(this, ranges, allocate);
    } else {
      rest.readVectored(ranges, allocate);
    }
  }

  @Override
  public boolean hasCapability(String capability) {
    return rest != null && StreamCapabilities.VECTOREDIO.equals(capability) && rest.hasCapability(capability);
  }

  @Override
  public void seek(long to) throws IOException {
    if (to < 0) {
      throw new EOFException("a position before the file");
    }
    position = to;
  }

  @Override
  public long getPos() {
    return position;
  }

  @Override
  public boolean seekToNewSource(long target) {
    return false;
  }

  @Override
  public void close() throws IOException {
    if (rest != null) {
      rest.close();
    }
  }
}
