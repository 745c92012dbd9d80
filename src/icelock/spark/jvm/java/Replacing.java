package icelock;

import java.util.function.Function;
import scala.Function1;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * Puts other nodes in the place of some nodes of a plan or an expression.
 *
 * Not to be extended: Janino finds two methods andThen in it then.
 */
@SuppressWarnings({"rawtypes", "unchecked"}) // Janino makes no bridge methods
public final class Replacing extends AbstractPartialFunction {
  private static final long serialVersionUID = 1L;

  @SuppressWarnings("serial") // never serialized
  private final Function<Object, Object> replaced;

  /** Takes a function that returns what comes in a node's place, or null to leave it. */
  Replacing(Function<Object, Object> replaced) {
    this.replaced = replaced;
  }

  @Override
  public boolean isDefinedAt(Object node) {
    return replaced.apply(node) != null;
  }

  @Override
  public Object applyOrElse(Object node, Function1 otherwise) {
    Object found = replaced.apply(node);
    return found == null ? otherwise.apply(node) : found;
  }

  /** Returns what SparkSessionExtensions takes, for a rule or strategy that is the same in all sessions. */
  static Function1 builder(final Object rule) {
    return new AbstractFunction1() {
      @Override
      public Object apply(Object session) {
        return rule;
      }
    };
  }
}
