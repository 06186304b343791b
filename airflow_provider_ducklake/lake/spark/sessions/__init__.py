"""Sessions of Spark: classic ones, beside a JVM, and those of Spark Connect, whose JVM is elsewhere."""
