"""Helpers of the ListOps task."""
