package icelock;

import java.io.IOException;
import java.net.URI;
import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.CompletableFuture;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FilterFileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.impl.OpenFileParameters;

/**
 * S3 as the native scan reads it: by Hadoop's S3A, or whatever the session has for the scheme, but with fewer requests.
 *
 * The length of an encrypted file is known from its manifest and is not asked for; SizedFile sees whether it is true. Plain files and
 * whatever else this class is asked for go to the session's file system.
 */
public class S3Files extends FilterFileSystem {
  private static final String[] SCHEMES = {"s3", "s3a", "s3n"};
  private static final String[] SETTINGS = {".impl", ".impl.disable.cache"};
  private static final String KEPT = "icelock.";
  private static final long BLOCK_SIZE = 128L << 20;

  /** Of a configuration with this class, the session's own. */
  private static final Map<Configuration, Configuration> OTHERS = Collections.synchronizedMap(new WeakHashMap<>());

  /** Makes a scan open files on S3 with this class, whatever Hadoop's cache says. */
  static void install(Configuration conf) {
    for (String scheme : SCHEMES) {
      String name = "fs." + scheme;
      if (S3Files.class.getName().equals(conf.get(name + ".impl"))) {
        continue;
      }
      for (String setting : SETTINGS) {
        String value = conf.get(name + setting);
        if (value != null) {
          conf.set(KEPT + name + setting, value);
        }
      }
      conf.set(name + ".impl", S3Files.class.getName());
      conf.setBoolean(name + ".impl.disable.cache", true);
    }
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    fs = FileSystem.get(name, other(conf));
    super.initialize(name, conf);
  }

  @SuppressWarnings("cast") // Janino does not cast what a generic method returns
  private static Configuration other(Configuration conf) {
    Configuration known = (Configuration) OTHERS.get(conf);
    if (known == null) {
      known = new Configuration(conf);
      for (String scheme : SCHEMES) {
        for (String setting : SETTINGS) {
          String name = "fs." + scheme + setting;
          String value = conf.get(KEPT + name);
          if (value == null) {
            known.unset(name);
          } else {
            known.set(name, value);
          }
        }
      }
      OTHERS.put(conf, known);
    }
    return known;
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    long length = KeyOfThread.length(path);
    return length < 0 ? super.getFileStatus(path) : new FileStatus(length, false, 1, BLOCK_SIZE, 0L, path);
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    long length = KeyOfThread.length(path);
    return length < 0 ? super.open(path, bufferSize) : new FSDataInputStream(SizedFile.open(fs, path, length));
  }

  @Override
  public FutureDataInputStreamBuilder openFile(Path path) throws IOException {
    return KeyOfThread.length(path) < 0 ? super.openFile(path) : createDataInputStreamBuilder(this, path);
  }

  /** What a builder of openFile calls. */
  @Override
  @SuppressWarnings({"rawtypes", "unchecked"}) // Janino makes no bridge methods
  protected CompletableFuture openFileWithOptions(Path path, OpenFileParameters parameters) throws IOException {
    return CompletableFuture.completedFuture(open(path, 0));
  }

  /** The file system behind this one stays open: Hadoop gives it to others too. */
  @Override
  public void close() {}
}
