"""One micro-batch: rules, quarantine and the transactions of its tables."""
