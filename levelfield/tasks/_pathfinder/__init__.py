"""Holds helpers of the Pathfinder tasks."""
