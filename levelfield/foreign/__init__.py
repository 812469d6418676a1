"""Pretrained language models behind one interface.

model, tokenizer = load("models/mamba2-2.7b")
generate(model, [tokenizer.encode("The capital of France is")], budgets=8)
"""

from __future__ import annotations

from levelfield.foreign.adapter import LanguageModel as LanguageModel
from levelfield.foreign.adapter import Tokenizer as Tokenizer
