"""Everything durable about a stream besides its table and its checkpoint."""
