"""What a stream writes: one module or folder per kind of sink; table_sink.py and external_sink.py are their bases."""
