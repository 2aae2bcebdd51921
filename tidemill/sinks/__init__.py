"""What a stream writes: one module per kind of sink, as data, and how one micro-batch reaches it once."""
