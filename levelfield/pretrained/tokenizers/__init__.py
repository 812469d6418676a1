"""Tokenizers read from files, without their libraries where possible."""
