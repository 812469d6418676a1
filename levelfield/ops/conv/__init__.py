"""Long and short convolutions."""
