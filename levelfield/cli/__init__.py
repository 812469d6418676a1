"""The command line: commands and live screens."""
