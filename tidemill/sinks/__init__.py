"""What a stream writes: one module per kind of sink; table_sink.py and external_sink.py are their bases."""
