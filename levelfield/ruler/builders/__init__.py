"""Builds RULER's samples, one file for each family of tasks."""
