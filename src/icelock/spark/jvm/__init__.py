"""The Java classes in ``java`` and how they get into the session's JVM, and its calls and errors."""
