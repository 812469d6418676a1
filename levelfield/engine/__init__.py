"""Finds studies, plans and tunes them, and executes their runs."""
