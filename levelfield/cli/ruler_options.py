"""Defines the options of the `ruler` command: the samples, the model, the texts, and where results are written.

    levelfield ruler models/mamba2-2.7b --lengths 1024,2048 --variant official --report-dir report

tyro makes one flat list of flags of these classes; a flag that is not given is None, or empty where it is a list.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from levelfield.cli.arguments import (
    NO_HINT,
    AtOnce,
    Count,
    Decimal,
    Device,
    Dollars,
    EngineName,
    Folder,
    Name,
    Names,
    Number,
    Positive,
    PositiveIfAny,
    Seconds,
    Switch,
    Text,
    ThreadsIfAny,
)
from levelfield.spec import Effort


@dataclass(frozen=True)
class EvalOptions:
    """The samples that the model is evaluated on.

    Args:
        table: a study of printed tables, such as huang2024_table1: evaluates what that did
        effort: with --table, how much of it to evaluate
        lengths: tokens of prompt and answer, such as 4096 or 4k (default: 1024,2048,4096, or the table's)
        tasks: names of RULER's tasks; all (default), needles (the eight), sweep (needles by haystack and by value), or
            beyond (tasks that RULER does not have), of which walks, stories, associations,
            tallies and requests are a set each; longbench, longmemeval or helmet, of official files
        depths: depths of the needles, such as 0,0.5,1 (default: every sample has its own)
        count: samples of each task and length (default: 100, or the table's)
        seed: seed from which RULER's samples are drawn (default: 42)
        flavour: which variant of RULER: sound (default), official or paper (a table's default)
        template: chat template around the task: base (default; a table has its own), meta-chat, vicuna-chat, lwm-chat,
            command-r-chat, chatglm-chat, RWKV, Phi3, meta-llama3, jamba, nemotron5-instruct, sheared_llama-chat or
            qwen2_instruct; own is the tokenizer's chat template
    """

    table: Name = None
    effort: Effort = "paper"
    lengths: Names = ()
    tasks: Names = ()
    depths: Names = ()
    count: PositiveIfAny = None
    seed: Count = None
    flavour: Annotated[Name, arg(name="variant")] = None
    template: Name = None


@dataclass(frozen=True)
class ModelChoice:
    """The model, and how it computes.

    Args:
        name: a folder of weights, a name on the Hugging Face hub, the id of a run that was trained here, or the address
            of a server
        tokenizer: folder or file of the tokenizer, if not beside the model; for a server also server (its tokenize
            endpoint) or approximate
        device: auto, cpu, cuda or cuda:1
        precision: precision of weights and computation
        reference_bug: decode the hybrid with the bug of its reference implementation
    """

    name: Annotated[Positional[str], arg(metavar="MODEL", help_behavior_hint="")] = ""
    tokenizer: Name = None
    device: Device = "auto"
    precision: Literal["float32", "bfloat16", "float64"] = "float32"
    reference_bug: Switch = False


@dataclass(frozen=True)
class PlaceOptions:
    """The place where a model answers, and how many copies of it.

    Args:
        engine: where copies of the model answer: local, ray (RAY_ADDRESS names the cluster), slurm
        copies: copies of the model that share the questions, each on its own GPUs where there are enough
        spread: GPUs that each copy is spread over, by transformers
        threads: processor threads of each copy (default: an equal share of the cores here; 1 on a cluster)
    """

    engine: EngineName = "local"
    copies: Annotated[Positive, arg(aliases=["--devices"])] = 1
    spread: Positive = 1
    threads: ThreadsIfAny = None


@dataclass(frozen=True)
class ServedOptions:
    """How a server is asked, where MODEL is its address, such as http://127.0.0.1:8000/v1.

    Args:
        model: the model's name on the server (default: the only one that it has)
        ask: how questions are put: text (default) or ids, which the server continues; chat, where the beginning of the
            answer stands at the end of the question; chat-prefix, where the server continues it as the assistant's
            (vLLM, SGLang, llama.cpp), or chat-marked-prefix (DeepSeek, Mistral)
        system: system prompt of a chat
        temperature: sampling temperature (default: 0, the likeliest token)
        thinking: tokens that the model may think, in addition to those of its answer (default: 0)
        budget_field: field of each request for the tokens that may be written, max_tokens or max_completion_tokens
            (default: max_tokens)
        more: further fields of each request, as JSON, such as '{"chat_template_kwargs": {"enable_thinking": false}}'
        at_once: questions that are sent at the same time
        tries: how often a question is asked before it counts as not answered
        timeout: seconds to wait for a whole reply
        key_env: environment variable that holds the key
        prices: dollars for a million tokens read, and for a million written, such as 0.15,0.60
        limit: dollars above which the cost must be confirmed
        yes: ask without confirming the cost
    """

    model: Name = None
    ask: Annotated[Literal["text", "ids", "chat", "chat-prefix", "chat-marked-prefix"], NO_HINT] = "text"
    system: Text = ""
    temperature: Decimal = 0.0
    thinking: Annotated[Number, arg(help_behavior_hint="")] = 0
    budget_field: Annotated[Literal["max_tokens", "max_completion_tokens"], NO_HINT] = "max_tokens"
    more: Text = ""
    at_once: AtOnce = 8
    tries: Positive = 8
    timeout: Seconds = 600
    key_env: Text = "OPENAI_API_KEY"
    prices: Names = ()
    limit: Dollars = 5.0
    yes: Switch = False


@dataclass(frozen=True)
class TextOptions:
    """The texts that samples are made of.

    Args:
        essays: file, folder or package of essays (default: those that ship)
        words: file of words, one a line, for lists of cwe that are longer than the one that ships
        squad: dev-v2.0.json of SQuAD, for qa_1
        hotpot: hotpot_dev_distractor_v1.json, for qa_2
        longbench: data.json of LongBench v2, or its Parquet file
        longmemeval: longmemeval_s_cleaned.json, or another of its files
        helmet: folder that HELMET's data.tar.gz unpacks to
    """

    essays: Name = None
    words: Name = None
    squad: Name = None
    hotpot: Name = None
    longbench: Name = None
    longmemeval: Name = None
    helmet: Name = None


@dataclass(frozen=True)
class OutputOptions:
    """The folders of results, and whether the model is run at all.

    Args:
        rescore: make rows and figures from stored predictions, without the model
        runs_dir: folder of run directories
        report_dir: folder of reports
    """

    rescore: Switch = False
    runs_dir: Folder = Path("runs")
    report_dir: Folder = Path("report")


ASKED, TEXTS, OUTPUT = EvalOptions(), TextOptions(), OutputOptions()
SERVED, PLACED = ServedOptions(), PlaceOptions()
