"""Audits the arrays of a task without a sequence model: what they hold, and what is had without reading in order."""
