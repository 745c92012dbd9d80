package icelock;

import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.PublicKey;
import java.security.SecureRandom;
import java.security.spec.MGF1ParameterSpec;
import java.security.spec.X509EncodedKeySpec;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.OAEPParameterSpec;
import javax.crypto.spec.PSource;
import javax.crypto.spec.SecretKeySpec;

/**
 * Calls from the JVM to Python without a server in Python: Python takes questions here and brings the answers, both over its own
 * authenticated connection to this JVM.
 *
 * Questions and answers are sealed (AES-256-GCM) under a key that is drawn here and sent to Python wrapped (RSA-OAEP) by its public key: so
 * py4j's logs do not have them, and a program that listens at this JVM's port after its end cannot ask anything.
 *
 * <pre>
 *   sealed      nonce (12 bytes) | ciphertext | tag (16 bytes); additional data: "question", or "answer" and the call's number
 *   question    CALL | call (8 bytes) | target (8 bytes) | argument;  GONE | 0 | target
 *   answer      DONE | bytes;  FAILED | error's number (8 bytes) | kind and message, each as its length (4 bytes) and UTF-8
 * </pre>
 */
public class Callbacks {
  private static final int CALL = 1;
  private static final int GONE = 2;
  private static final int DONE = 0;
  /** Bytes of a question before its argument. */
  private static final int HEAD = 17;
  private static final int NONCE = 12;
  private static final int TAG_BITS = 128;
  private static final int KEY = 32;
  /** Targets that may live before the garbage collector is asked to run, which finds the unreachable ones. */
  private static final int FEW = 256;
  private static final byte[] END = new byte[0];
  private static final String ENDED = "the Python process no longer answers calls";
  private static final Cleaner CLEANER = Cleaner.create();

  private final SecureRandom random = new SecureRandom();
  private final SecretKeySpec key;
  private final byte[] wrapped;
  private final LinkedBlockingQueue<byte[]> questions = new LinkedBlockingQueue<>();
  private final ConcurrentHashMap<Long, CompletableFuture<byte[]>> waiting = new ConcurrentHashMap<>();
  private final AtomicLong calls = new AtomicLong();
  private int live;
  private int most = FEW;
  volatile boolean closed;

  private Callbacks(PublicKey of) throws GeneralSecurityException {
    byte[] drawn = new byte[KEY];
    random.nextBytes(drawn);
    key = new SecretKeySpec(drawn, "AES");
    Cipher cipher = Cipher.getInstance("RSA/ECB/OAEPPadding");
    cipher.init(Cipher.ENCRYPT_MODE, of, new OAEPParameterSpec("SHA-256", "MGF1", MGF1ParameterSpec.SHA256, PSource.PSpecified.DEFAULT));
    wrapped = cipher.doFinal(drawn);
  }

  /** Returns a channel to the holder of an RSA key; its public key is given in DER. */
  public static Callbacks open(byte[] publicKey) throws GeneralSecurityException {
    return new Callbacks(KeyFactory.getInstance("RSA").generatePublic(new X509EncodedKeySpec(publicKey)));
  }

  /** Returns the channel's key, wrapped. */
  public byte[] key() {
    return wrapped;
  }

  /** Returns an object that calls the target of that number. Python is told when the object becomes unreachable. */
  public Target target(long number) {
    Target made = new Target(this, number);
    boolean many;
    synchronized (this) {
      live++;
      many = live > most;
      most = many ? 2 * live : most;
    }
    CLEANER.register(made, new Gone(this, number));
    if (many) {
      // Small objects here, which the collector does not hurry to free, keep whole plans in Python.
      System.gc();
    }
    return made;
  }

  /** Waits for the next question, and returns it sealed; null when the channel was closed. */
  @SuppressWarnings("cast") // Janino does not cast what a generic method returns
  public byte[] take() throws InterruptedException {
    byte[] next = (byte[]) questions.take();
    if (next == END) {
      questions.add(END);
      return null;
    }
    return next;
  }

  /** Takes the answer to a call. */
  @SuppressWarnings("cast") // as in take
  public void answer(long call, byte[] sealed) throws GeneralSecurityException {
    CompletableFuture<byte[]> answer = (CompletableFuture<byte[]>) waiting.remove(Long.valueOf(call));
    if (answer == null) {
      return;
    }
    try {
      answer.complete(open(sealed, ofCall(call)));
    } catch (GeneralSecurityException e) {
      answer.completeExceptionally(e);
      throw e;
    }
  }

  /** Ends the channel: calls that wait, and later ones, fail. */
  public void close() {
    closed = true;
    questions.add(END);
    for (CompletableFuture<byte[]> each : waiting.values()) {
      each.completeExceptionally(new IllegalStateException(ENDED));
    }
  }

  @SuppressWarnings("cast") // as in take
  byte[] call(long target, byte[] argument) {
    long number = calls.incrementAndGet();
    CompletableFuture<byte[]> answer = new CompletableFuture<>();
    waiting.put(Long.valueOf(number), answer);
    try {
      if (closed) {
        throw new IllegalStateException(ENDED);
      }
      ask(CALL, number, target, argument);
      return opened((byte[]) answer.get());
    } catch (ExecutionException e) {
      throw new IllegalStateException(e.getCause());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted while Python planned a scan", e);
    } finally {
      waiting.remove(Long.valueOf(number));
    }
  }

  void ask(int kind, long call, long target, byte[] argument) {
    ByteBuffer question = ByteBuffer.allocate(HEAD + argument.length).put((byte) kind).putLong(call).putLong(target).put(argument);
    try {
      questions.add(seal(question.array(), "question".getBytes(StandardCharsets.UTF_8)));
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException(e);
    }
  }

  private static byte[] opened(byte[] answer) {
    if (answer[0] == DONE) {
      return Arrays.copyOfRange(answer, 1, answer.length);
    }
    ByteBuffer in = ByteBuffer.wrap(answer, 1, answer.length - 1);
    long number = in.getLong();
    String kind = text(in);
    throw new Failure(kind, text(in), number);
  }

  private static String text(ByteBuffer in) {
    byte[] bytes = new byte[in.getInt()];
    in.get(bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }

  private static byte[] ofCall(long call) {
    return ("answer " + call).getBytes(StandardCharsets.UTF_8);
  }

  private byte[] seal(byte[] plain, byte[] additional) throws GeneralSecurityException {
    byte[] nonce = new byte[NONCE];
    random.nextBytes(nonce);
    Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
    cipher.init(Cipher.ENCRYPT_MODE, key, new GCMParameterSpec(TAG_BITS, nonce));
    cipher.updateAAD(additional);
    byte[] sealed = new byte[NONCE + plain.length + TAG_BITS / 8];
    System.arraycopy(nonce, 0, sealed, 0, NONCE);
    cipher.doFinal(plain, 0, plain.length, sealed, NONCE);
    return sealed;
  }

  private byte[] open(byte[] sealed, byte[] additional) throws GeneralSecurityException {
    Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
    cipher.init(Cipher.DECRYPT_MODE, key, new GCMParameterSpec(TAG_BITS, sealed, 0, NONCE));
    cipher.updateAAD(additional);
    return cipher.doFinal(sealed, NONCE, sealed.length - NONCE);
  }

  synchronized void gone() {
    live--;
    most = Math.max(FEW, Math.min(most, 2 * live));
  }

  /** A function in Python. */
  public static class Target {
    private final Callbacks callbacks;
    private final long number;

    Target(Callbacks callbacks, long number) {
      this.callbacks = callbacks;
      this.number = number;
    }

    /** Returns another function of the same process. */
    Target other(long of) {
      return callbacks.target(of);
    }

    /** Returns what the function returns; throws Failure if it raised an error. */
    public byte[] call(byte[] argument) {
      return callbacks.call(number, argument);
    }
  }

  /** Tells Python that a target is no longer needed. */
  public static class Gone implements Runnable {
    private final Callbacks callbacks;
    private final long number;

    Gone(Callbacks callbacks, long number) {
      this.callbacks = callbacks;
      this.number = number;
    }

    @Override
    public void run() {
      callbacks.gone();
      if (!callbacks.closed) {
        callbacks.ask(GONE, 0L, number, END);
      }
    }
  }
}
