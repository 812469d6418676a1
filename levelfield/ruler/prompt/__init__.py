"""Composes prompts of an exact number of tokens."""
