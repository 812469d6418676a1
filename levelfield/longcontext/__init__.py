"""Evaluates language models on RULER: defines evaluations, stores answers, and computes rows from them."""
