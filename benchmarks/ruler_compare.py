"""Compares RULER's samples, ours of the variant `official` and NVIDIA's: are they drawn from one distribution?

    python benchmarks/ruler_compare.py --peers PEERS --tokenizer tokenizer.json [--lengths 1024 4096] [--samples 60]

Prints, per task and length and for both: least, mean and most prompt tokens; the mean place of the first reference in
the prompt, from 0 to 1, with its standard error; and the number of words. Whether they differ by more than three
standard errors stands at the end of the row. Lengths of essays, noise and lines have two modes, and how many samples
fall into the lower one depends on the one sample that the size was found on.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from ruler_peer import File, Official

from levelfield.ruler import PromptOptions, generate, named

TASKS = ("niah_single_1", "niah_single_2", "niah_multikey_1", "niah_multikey_3", "niah_multiquery", "vt", "cwe", "fwe")
Measures = list[tuple[int, float, int]]  # of each sample: tokens, place of the answer, words


def measure(text: str, tokens: int, reference: str) -> tuple[int, float, int]:
    return tokens, text.find(reference) / len(text), len(text.split())


def summary(found: Measures) -> tuple[str, float, float]:
    tokens, places, words = zip(*found)
    place, error = statistics.mean(places), statistics.pstdev(places) / len(places) ** 0.5
    shown = f"{min(tokens):6} {statistics.mean(tokens):8.0f} {max(tokens):6}  {place:.3f} +- {error:.3f}"
    return f"{shown}  {statistics.mean(words):8.0f}", place, error


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peers", type=Path, required=True, help="folder with a checkout named RULER")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json, or one packed with xz")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    args = parser.parse_args()
    tokenizer = File(args.tokenizer)
    official = Official(args.peers / "RULER", tokenizer)
    print("task, length, whose: tokens least, mean, most; place of the answer; words")
    for task in args.tasks:
        for length in args.lengths:
            rows, _ = official.samples(task, length, args.samples)
            texts = [row["input"] + row["answer_prefix"] for row in rows]
            theirs = [measure(t, len(tokenizer.encode(t)), r["outputs"][0]) for t, r in zip(texts, rows)]
            made = generate(named(task), length, tokenizer, PromptOptions("official"), count=args.samples)
            ours = [measure(s.text, len(s.ids), s.references[0]) for s in made]
            (a, place_a, error_a), (b, place_b, error_b) = summary(theirs), summary(ours)
            far = abs(place_a - place_b) > 3 * (error_a**2 + error_b**2) ** 0.5
            print(f"{task:16} {length:6} NVIDIA     {a}")
            print(f"{'':16} {'':6} levelfield {b}{'   places differ' if far else ''}", flush=True)


if __name__ == "__main__":
    main()
