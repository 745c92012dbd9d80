package icelock;

/** An error of icelock's, on its way to Python: there it is raised as what it is (errors_of_jvm.py). */
public class Failure extends RuntimeException {
  private final String kind;
  private final long number;

  /**
   * @param kind the name of the error's class in Python
   * @param message as it is shown
   * @param number of the error in the Python process that planned, or 0
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

  public String toString() {
    return kind + ": " + getMessage();
  }
}
