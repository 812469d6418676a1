"""Holds helpers of the speech task."""
