"""Holds what several studies say of how they deviate from a paper, word for word: one sentence a name.

A sentence of one study alone stands in its file; `levelfield.spec.UNTUNED` and those of huang2024's studies of models
trained here have places of their own.
"""

from __future__ import annotations

ONE_RUN = "The paper prints one run per cell; hours and paper run three seeds."
GENERATED = (
    "ListOps and Pathfinder are generated anew by the rules of the official generators, not read from the release."
)

# amos2025
TEXT_SELECTION = (
    "Text is selected on a tenth of train that is left out of training, where the paper's code selects on test."
)
TEXT_LENGTH = "Text has up to 4,096 characters, as every configuration of the paper's code; the paper says 2,048."
RETRIEVAL_HEAD = (
    "Retrieval's head has a hidden layer of ReLU, not GELU, and no test pair is left out, where the paper's code "
    "drops the last incomplete batch."
)
PRETRAINING_HEAD = (
    "Pretraining on Text and Retrieval has a linear head over the symbols; a slip in the paper's code leaves it "
    "without one."
)
PADDING = (
    "Padding is masked in attention, where the paper's code attends to it, and ListOps has no end-of-sequence symbol."
)
EPOCHS = (
    "The paper ends a phase after 200 epochs or 24 hours on one GPU, whichever comes first, and Transformers on "
    "PathX after five days on four; here only the printed epochs end it, however long they take."
)
FINE_TUNING_RECIPE = (
    "Of the Transformers' scratch runs only the search grid is printed: here they use the fine-tuning recipe."
)
S4_QUOTED = "S4's scratch scores are quoted by the paper from another code base; here they are trained with its recipe."
S4_DROPOUT = "S4's dropout acts once, on the residual branch."
RANDOM_STARTS = (
    "A random start redraws the parameters of the mixers, from N(0, 0.01); the paper's code redraws every "
    "parameter of the model, norms, embeddings and heads included."
)
HOURS = "Hours trains models of at most 128 channels and 6 layers for 8,000 steps a phase, and leaves out PathX."
POOLED = (
    "CIFAR-10 pooled to 8 x 8 pixels, width 64 and two layers, with one feed-forward layer around every mixer: no "
    "printed number belongs beside these."
)
RECALL = (
    "In-context recall is pretrained by the next symbol, which names the value behind a repeated key: what is "
    "asked is part of what is pretrained. It shows that the protocol can help, not how often it does."
)

# miralles2025
BYTES = "Texts have 4,096 bytes, as table 6 and the public code say; section 2.2 speaks of 4,000 for Retrieval."
VALIDATION = "Text's validation reviews are a tenth of train by their content; the public code draws an unseeded tenth."
GRAY = "The CIFAR-10 augmentation acts on the gray picture, where the paper's acts on the colour picture before it."
OPTIMIZER = "Optimizer betas and the plateau schedule's numbers are not printed and come from earlier public code."
PRECISION = (
    "Everything is in float32, where the paper's code uses mixed precision; binary tasks have two logits, not one."
)
QUOTED_INPUTS = (
    "Quoted models read gray values as numbers and texts as characters; models trained anew read symbols and "
    "bytes, as their papers say."
)
