"""State-space models: kernels, scans, recurrent steps."""
