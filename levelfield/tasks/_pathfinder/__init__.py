"""Helpers of the Pathfinder tasks."""
