"""Holds helpers of the image tasks."""
