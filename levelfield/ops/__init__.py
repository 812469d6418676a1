"""Scans, long convolutions, rotations and initial values: each fast path beside its naive twin.

Fast paths have first derivatives alone. A backward pass through such a gradient raises RuntimeError, but where nothing
after the layer is nonlinear, torch leaves out silently what the gradient owes to the layer's input: take naive twins.
"""
