"""Ready-made sizes, models and the comparison study."""
