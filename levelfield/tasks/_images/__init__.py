"""Helpers of the image tasks."""
