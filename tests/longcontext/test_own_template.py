"""A model that is loaded here is asked in its tokenizer's own chat template, as transformers writes it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from tiny_llama import tiny_checkpoint

from levelfield.cli import app
from levelfield.longcontext.answers import predictions

NEEDED = ("transformers", "tokenizers", "jinja2")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [pytest.mark.peers, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")]
ASKED = ("--tasks", "niah_single_1", "--lengths", "512", "--count", "2", "--template", "own")


def test_it_answers_as_after_the_template_that_transformers_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.chdir(tmp_path)
    model = str(tiny_checkpoint(Path("tiny")))
    app.main(["ruler", model, *ASKED, "--dry-run"])
    assert "2 questions." in capsys.readouterr().out and not Path("runs").exists()
    app.main(["ruler", model, *ASKED])
    folder = Path("runs/ruler/tiny")
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert {row["asked"] for row in rows} == {"prompts to the model itself, template own, temperature 0"}

    app.main(["export", "ruler", "--tokenizer", model, *ASKED, "--format", "jsonl"])
    samples = [json.loads(line) for line in next(Path("tasks").rglob("*.jsonl")).read_text().splitlines()]
    found = {p.index: p for p in predictions(folder)}
    theirs, text = AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    for index, prompt in enumerate(sample["input"] for sample in samples):
        task, _, beginning = prompt.removeprefix("<|user|>").partition("</s><|assistant|>")
        said = text.apply_chat_template([{"role": "user", "content": task}], tokenize=False, add_generation_prompt=True)
        assert prompt == said + beginning and beginning.endswith(" is")
        ids = text(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        assert ids.shape[1] == found[index].tokens <= 512 - 128
        out = theirs.generate(ids, max_new_tokens=found[index].made, do_sample=False, pad_token_id=0)
        assert text.decode(out[0, ids.shape[1] :], skip_special_tokens=True) == found[index].text != ""
