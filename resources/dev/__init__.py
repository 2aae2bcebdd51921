"""The development broker, and the supervisor that ends it with its owner."""
