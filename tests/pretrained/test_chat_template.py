"""Chat templates: the text around what a user says, as transformers renders it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from levelfield.pretrained.tokenizers.chat_template import ChatTemplate, read_chat_template
from levelfield.spec import UserError

CHATML = (
    "{% for message in messages %}\n"
    "    {%- if loop.first and message.role != 'system' %}<|im_start|>system\nYou are helpful.<|im_end|>\n{% endif %}\n"
    "    {{- '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>' + '\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}{{ '[INST] ' + m.content + ' [/INST]' }}{% endfor %}"
    "{{ strftime_now('%Y') }}{% for i in range(9) %}{% if i > 1 %}{% break %}{% endif %}{{ i | tojson }}{% endfor %}"
)
PICKY = "{% for m in messages if m.role == 'system' %}{{ raise_exception('no system') }}{% endfor %}{{ messages }}"
BROKEN = [PICKY, "{{ nothing.at.all }}", "{% for %}", "{{ messages[0].content * 2 }}", "hello"]


def test_the_text_before_and_after_what_the_user_says() -> None:
    template = ChatTemplate(CHATML, {}, "x")
    before, after = template.around()
    assert before == "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\n"
    assert after == "<|im_end|>\n<|im_start|>assistant\n"
    assert template.around("Be brief.")[0] == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
    assert template.around("", {"enable_thinking": False})[1].endswith("<think>\n\n</think>\n\n")


def test_a_template_names_the_same_day_every_day() -> None:
    assert ChatTemplate(LLAMA, {"bos_token": "<s>"}, "x").around() == ("<s>[INST] ", " [/INST]202401")


@pytest.mark.parametrize(
    "source", [PICKY, "{{ nothing.at.all }}", "{% for %}", "{{ messages[0].content * 2 }}", "hello", "{{ 1 / 0 }}"]
)
def test_a_template_that_fails_is_said_in_one_sentence(source: str) -> None:
    with pytest.raises(UserError, match="chat template in some/folder"):
        ChatTemplate(source, {}, "some/folder").around("A system prompt." if source == PICKY else "")


def test_a_template_cannot_reach_the_system() -> None:
    with pytest.raises(UserError, match="unsafe"):
        ChatTemplate("{{ messages.__class__.__base__.__subclasses__() }}", {}, "x").around()


@pytest.mark.parametrize("where", ["file", "settings", "named"])
def test_templates_are_found_where_models_have_them(where: str, tmp_path: Path) -> None:
    if where == "file":
        (tmp_path / "chat_template.jinja").write_text(LLAMA)
    one = (
        LLAMA
        if where == "settings"
        else [{"name": "tool_use", "template": "no"}, {"name": "default", "template": LLAMA}]
    )
    settings = {"bos_token": {"content": "<s>"}} | ({} if where == "file" else {"chat_template": one})
    found = read_chat_template(tmp_path, settings)
    assert found is not None
    assert (found.source, found.bos) == (LLAMA, "<s>")
    assert read_chat_template(tmp_path / "elsewhere", {}) is None


@pytest.mark.peers
@pytest.mark.parametrize("source", [CHATML, LLAMA.replace("{{ strftime_now('%Y') }}", "")])
@pytest.mark.parametrize("system", ["", "Be brief."])
def test_it_renders_as_transformers_does(source: str, system: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: levelfield[text]")
    tokenizers = pytest.importorskip("tokenizers")
    tokenizers.Tokenizer(tokenizers.models.BPE()).save(str(tmp_path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "chat_template": source}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    said = [{"role": "system", "content": system}] if system else []
    said.append({"role": "user", "content": "What is it?"})
    ours = read_chat_template(tmp_path, settings)
    assert ours is not None
    before, after = ours.around(system)
    assert before + "What is it?" + after == theirs.apply_chat_template(
        said, tokenize=False, add_generation_prompt=True
    )
