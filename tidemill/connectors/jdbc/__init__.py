"""Tables and queries of a Postgres database as a snapshot, which Spark's JDBC reader reads."""
