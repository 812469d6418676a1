"""Holds ready-made sizes and models, and the comparison study."""
