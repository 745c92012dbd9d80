package icelock;

/** One of icelock's errors on its way to Python, which raises it as the class that kind names (jvm/errors.py). */
public class Failure extends RuntimeException {
  private static final long serialVersionUID = 1L;
  private final String kind;
  private final long number;

  /**
   * @param kind the error's class in Python
   * @param message as users see it
   * @param number of the error in the Python process that planned; 0 for an error of a task
   */
  public Failure(String kind, String message, long number) {
    super(message);
    this.kind = kind;
    this.number = number;
  }

  public Failure(String kind, String message, Throwable cause) {
    super(message, cause);
    this.kind = kind;
    this.number = 0;
  }

  public String kind() {
    return kind;
  }

  public long number() {
    return number;
  }

  @Override
  public String toString() {
    return kind + ": " + getMessage();
  }
}
