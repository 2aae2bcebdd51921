"""A Delta LogStore for S3: its source, its compiled jar, and the program that compiles it.

Delta's own LogStore for S3 loses commits if two drivers write the same table. ConditionalPutLogStore.java says why and
what it does instead. The jar is part of the package, so that no user needs a Java compiler.
"""

from pathlib import Path

CLASS = "io.tidemill.delta.ConditionalPutLogStore"
"""The value of `spark.delta.logStore.s3a.impl`."""
SOURCE = Path(__file__).with_name("ConditionalPutLogStore.java")
JAR = Path(__file__).with_name("tidemill-log-store.jar")

__all__ = ["CLASS", "JAR", "SOURCE"]
