"""Holds helpers of the BIDMC tasks."""
