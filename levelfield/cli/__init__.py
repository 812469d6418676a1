"""Implements the command line: commands and live screens."""
