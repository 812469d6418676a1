"""Scans, long convolutions, rotations and initial values: each fast path beside its naive twin."""
