"""Other people's modules and data, and their identity."""
