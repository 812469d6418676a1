"""Kernels of other packages, used where they agree with ours."""
