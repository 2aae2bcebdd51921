"""The development broker, and the supervisor that stops it when its owner ends."""
