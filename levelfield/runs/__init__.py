"""A run's folder: store, results, checkpoint, ledger, rows."""
