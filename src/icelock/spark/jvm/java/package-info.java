/**
 * icelock's classes in a Spark session's JVM.
 *
 * Janino compiles them in the running session ({@code icelock.spark.jvm.classes} lists them), and {@code make check} compiles them by
 * javac, with all warnings. Janino erases generics without the casts and bridge methods that javac adds: so values are cast where they are
 * used, and what implements a generic method of Scala's is raw. It knows no lambdas and no multi-catch either.
 */
package icelock;
