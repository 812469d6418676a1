"""Numba loops for a CPU: the inner loops of operators in the other folders."""
