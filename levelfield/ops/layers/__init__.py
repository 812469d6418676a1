"""Small modules that several mixers share."""
