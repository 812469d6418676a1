"""Reads checkpoints: one module for each format, with `matches` and `convert`."""
