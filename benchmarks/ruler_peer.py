"""Loads NVIDIA's generator beside ours, in one process with one tokenizer: what the two RULER scripts share.

It needs a checkout of NVIDIA/RULER, the packages nltk (with punkt), wonderwords, scipy and tqdm, and takes our essays
and words for the two files that checkout lacks. Its modules read their arguments when imported; they are given here.
"""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from levelfield.ruler.sources import dictionary, essays

SCRIPTS = {
    "niah": ("niah", 128, "niah"),
    "vt": ("variable_tracking", 30, "variable_tracking"),
    "cwe": ("common_words_extraction", 120, "common_words_extraction"),
    "fwe": ("freq_words_extraction", 50, "freq_words_extraction"),
}


class File:
    """A tokenizer.json through the package `tokenizers`, for both sides."""

    def __init__(self, path: Path) -> None:
        import lzma

        from tokenizers import Tokenizer

        data = path.read_bytes()
        self.inner = Tokenizer.from_str((lzma.decompress(data) if path.suffix == ".xz" else data).decode())
        self.name = path.name.split(".")[0]

    def encode(self, text: str) -> list[int]:
        return self.inner.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Any) -> str:
        return self.inner.decode(list(ids))

    text_to_tokens = encode


class Timed:
    """Stands in for tqdm, and measures CPU seconds of each step of the sample loop, but not of the search before it."""

    def __init__(self, items: Iterable[int]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[int]:
        Timed.seconds = []
        for item in self.items:
            start = time.process_time()
            yield item
            Timed.seconds.append(time.process_time() - start)

    seconds: list[float] = []


class Official:
    """The official modules, loaded from a copy that has the files it needs."""

    def __init__(self, checkout: Path, tokenizer: File) -> None:
        self.folder = Path(tempfile.mkdtemp()) / "data"
        shutil.copytree(checkout / "scripts" / "data", self.folder)
        json_folder = self.folder / "synthetic" / "json"
        (json_folder / "PaulGrahamEssays.json").write_text(json.dumps({"text": " ".join(essays(None))}))
        (json_folder / "english_words.json").write_text(json.dumps(dict(enumerate(dictionary(None)))))
        stub = ModuleType("tokenizer")
        vars(stub)["select_tokenizer"] = lambda kind, path: tokenizer
        sys.modules["tokenizer"] = stub
        sys.path[:0] = [str(self.folder), str(self.folder / "synthetic")]
        self.niah: ModuleType | None = None

    def module(self, name: str, length: int) -> ModuleType:
        """Ready for `length` tokens, seeded as the script is."""
        constants = importlib.import_module("constants").TASKS
        script, tokens, key = SCRIPTS[name]
        template = constants[key]["template"] + constants[key]["answer_prefix"]
        values = {"max_seq_length": length, "tokens_to_generate": tokens, "num_samples": 1}
        fixed = {"save_dir": ".", "save_name": "x", "tokenizer_path": "x", "template": template}
        flags = [part for k, v in (values | fixed).items() for part in (f"--{k}", str(v))]
        if name == "niah" and self.niah is not None:  # it takes 15 s to import
            self.niah.args.max_seq_length = length
            random.seed(42)
            return self.niah
        sys.argv = [script, *flags]
        spec = importlib.util.spec_from_file_location(script, self.folder / "synthetic" / f"{script}.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        vars(module)["tqdm"] = Timed
        if name == "niah":
            self.niah = module
        return module

    def samples(self, task: str, length: int, count: int) -> tuple[list[dict[str, Any]], list[float]]:
        """`count` samples of one of our names, and the CPU seconds of each."""
        kind = "niah" if task.startswith("niah") else task
        module = self.module(kind, length)
        if kind == "niah":
            configure(module, task)
            rows = module.generate_samples(count, length, Path("."))
        elif kind == "vt":
            example = module.sys_vartrack_w_noise_random(num_samples=1, max_seq_length=500, incremental=5)[0]
            rows = module.sys_vartrack_w_noise_random(count, length, icl_example=example, final_output=True)
        elif kind == "cwe":
            rows = module.sys_word_pair_random(count, length, Path("."))
        else:
            rows = module.sys_kwext(count, length)
        return rows, Timed.seconds


def configure(module: ModuleType, task: str) -> None:
    """Sets what the command line of the needle script would."""
    from levelfield.ruler import Needle, named

    ours = named(task)
    assert isinstance(ours, Needle)
    args = module.args
    args.type_haystack = {"needles": "needle"}.get(ours.haystack, ours.haystack)
    args.type_needle_k, args.type_needle_v = ours.key + "s", ours.value + "s"
    args.num_needle_k, args.num_needle_v, args.num_needle_q = max(ours.keys, ours.queries), ours.values, ours.queries
    noise = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
    texts = {"essay": list(essays(None)), "noise": noise, "needle": module.needle}
    vars(module)["haystack"] = texts[args.type_haystack]
