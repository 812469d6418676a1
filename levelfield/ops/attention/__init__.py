"""Softmax attention and its sparse and biased variants."""
