"""What commands share: output, flags, confirmation, live progress."""
