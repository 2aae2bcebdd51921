"""A Delta table without a JVM: the counts of its commits, and the files that nothing needs."""
