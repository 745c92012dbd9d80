package icelock;

import java.io.IOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.UUID;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;

/** What the checkpoint of a query that runs here says of a batch. */
public class StreamOffsets {
  private StreamOffsets() {}

  /** Returns the SHA-256 of the checkpoint's file of offsets of a batch, which Spark writes before the batch; null: there is none. */
  @SuppressWarnings("cast") // Janino does not cast what generic methods return
  public static String of(SparkSession session, String query, long epoch) {
    StreamExecution found = (StreamExecution) session.sharedState().activeStreamingQueries().get(UUID.fromString(query));
    if (found == null || epoch < 0) {
      return null;
    }
    Path path = found.offsetLog().batchIdToPath(epoch);
    CheckpointFileManager files = found.offsetLog().fileManager();
    if (!files.exists(path)) {
      return null;
    }
    try {
      FSDataInputStream in = files.open(path);
      try {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(in.readAllBytes()));
      } finally {
        in.close();
      }
    } catch (IOException e) {
      throw new IllegalStateException("the checkpoint's file " + path + " cannot be read", e);
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e);
    }
  }
}
