"""Official files, prepared arrays, data cards and batches."""
