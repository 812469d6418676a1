"""Holds helpers of the ListOps task."""
