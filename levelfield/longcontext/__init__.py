"""Evaluates language models on RULER: exams, stored answers, rows."""
