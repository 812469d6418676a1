"""Studies: one file per table or figure of a paper, each ending in `study = Study(...)`; docs/studies.md lists them."""
