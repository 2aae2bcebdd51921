"""What a sink does with a Postgres database: its connection, its tables, and the transaction of a batch."""
