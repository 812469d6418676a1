"""Helpers of the text tasks."""
