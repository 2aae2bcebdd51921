"""Commands about this machine: demo, jars, the warm server, connections."""
