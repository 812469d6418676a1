"""Helpers of the BIDMC tasks."""
