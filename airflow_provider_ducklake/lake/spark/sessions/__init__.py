"""Sessions of Spark: classic ones, beside a JVM, and those of Spark Connect, which has it elsewhere."""
