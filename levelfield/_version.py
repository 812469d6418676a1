"""The version of levelfield, in a file that imports nothing."""

__version__ = "0.1.0"
