"""Helpers of the speech task."""
