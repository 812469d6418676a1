"""Reads tokenizers from files, without their libraries where possible."""
