"""Evaluates a language model behind an OpenAI-compatible server: how questions are put, asked, counted and stored."""
