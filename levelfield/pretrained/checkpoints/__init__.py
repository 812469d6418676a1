"""One file for each format of checkpoint."""
