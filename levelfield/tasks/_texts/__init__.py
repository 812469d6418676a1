"""Holds helpers of the text tasks."""
