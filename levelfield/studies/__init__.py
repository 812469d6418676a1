"""Holds the studies, a file for a table or figure, each ending in `study = Study(...)`; docs/studies.md lists them."""
