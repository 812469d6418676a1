"""Writes a folder with a Llama of two layers, of random weights, and its tokenizer, for tests with other evaluators."""

from __future__ import annotations

from pathlib import Path

CHAT = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}<|assistant|>"


def tiny_checkpoint(folder: Path, head: int = 8) -> Path:
    """Writes it with transformers, and returns the folder. The tokenizer is of bytes, and has a chat template.

    head: features of each of its two heads.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special, letters = ["<s>", "</s>", "<|user|>", "<|assistant|>"], pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=letters, show_progress=False)
    inner.train_from_iterator(["The grass is green. The sky is blue. One of the special magic numbers is"], trainer)
    outer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", chat_template=CHAT)
    outer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 2 * head, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=320, max_position_embeddings=1024, **sizes)).save_pretrained(folder)
    return folder
