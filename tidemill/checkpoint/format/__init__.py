"""The file formats of a checkpoint: reading what Spark wrote, one module per kind of file."""
