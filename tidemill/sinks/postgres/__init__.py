"""The sink for Postgres: its connection, its tables, and the transaction of a batch."""
