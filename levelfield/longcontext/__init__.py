"""Evaluates language models on RULER: what is asked, stored answers, and the rows made of them."""
