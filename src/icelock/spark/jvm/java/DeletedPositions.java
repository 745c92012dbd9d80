package icelock;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.roaringbitmap.PeekableIntIterator;
import org.roaringbitmap.RoaringBitmap;

/** Deleted positions in the 64-bit portable form of Roaring, asked for in ascending order. */
public class DeletedPositions {
  private final RoaringBitmap[] bitmaps;
  private final int[] keys;
  private int bitmap = -1;
  private PeekableIntIterator left;
  private long next;

  @SuppressWarnings("cast") // Janino takes the slice for a Buffer
  public DeletedPositions(byte[] bytes) {
    ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    int count = (int) buffer.getLong();
    bitmaps = new RoaringBitmap[count];
    keys = new int[count];
    for (int i = 0; i < count; i++) {
      keys[i] = buffer.getInt();
      bitmaps[i] = new RoaringBitmap();
      try {
        bitmaps[i].deserialize((ByteBuffer) buffer.slice());
      } catch (IOException e) {
        throw new IllegalStateException("deleted positions cannot be read", e);
      }
      buffer.position(buffer.position() + bitmaps[i].serializedSizeInBytes());
    }
    step();
  }

  /** Returns whether a position, not less than those of earlier calls, is deleted. */
  public boolean has(long position) {
    while (next < position) {
      step();
    }
    return next == position;
  }

  /** Returns whether a position from first (as in has) up to but not including end is deleted. */
  boolean any(long first, long end) {
    has(first);
    return next < end;
  }

  private void step() {
    while (left == null || !left.hasNext()) {
      bitmap++;
      if (bitmap >= keys.length) {
        next = Long.MAX_VALUE;
        return;
      }
      left = bitmaps[bitmap].getIntIterator();
    }
    next = ((long) keys[bitmap] << 32) | (left.next() & 0xffffffffL);
  }
}
