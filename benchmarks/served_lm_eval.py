"""Measures an evaluation of RULER end to end, levelfield's and lm-evaluation-harness's, of one server in one call.

    python benchmarks/served_lm_eval.py --tokenizer FOLDER [--count 500] [--out FILE.csv]

Both are asked for as many questions of the same two tasks, length, tokenizer and number of requests at once, each by
its own command in a process of its own: making samples, asking, scoring and writing count, and so do imports. The
server is a process that finds the value of the key that a prompt asks for, after a fixed time, and notes when it was
asked. A third side gives lm-evaluation-harness the samples that `levelfield export ruler` writes, whose answers must be
those that levelfield has stored, one by one: `same` counts them. lm-evaluation-harness makes 500 samples of a task
however few are asked, so take 500.

It needs `pip install 'lm_eval[api,ruler]' transformers`. Both tasks have haystacks of lines, so that NLTK's splitter of
sentences, which lm-evaluation-harness downloads, is never called: an empty folder stands for it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from served_requests import append, machine

TASKS = ("niah_single_1", "niah_multikey_2")
SIDES = ("levelfield", "lm-eval, its own RULER", "lm-eval, samples of levelfield")
TIMES = ("seconds", "per_second", "cpu_s", "to_first_s", "asking_s")
COLUMNS = ("side", "questions", "slots", "delay_s", "length", "tokenizer", *TIMES, "right", "same", "machine")
KEY = re.compile(r"magic number for (.+?) mentioned in the provided text")


def answer(prompt: str) -> str:
    """Returns what the prompt says of the key that it asks for last."""
    key = KEY.findall(prompt)[-1]  # of several words, where a noun has them
    found = re.search(rf"for {re.escape(key)} is: (\d+)", prompt)
    return f" {found[1]}." if found else " unknown"


def serve(slots: int, delay: float, port: multiprocessing.Queue[int], asked: Any) -> None:
    """Runs the server until the process is ended. asked: times of the first and the last request, and their number."""
    free, lock = threading.Semaphore(slots), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def log_message(self, format: str, *args: object) -> None: ...

        def do_GET(self) -> None:
            self.send_error(404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not self.path.endswith("/v1/completions"):
                self.send_error(404)
                return
            with lock:
                asked[0], asked[1], asked[2] = asked[0] or time.time(), time.time(), asked[2] + 1
            with free:
                time.sleep(delay)
            prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
            choices = [{"index": i, "text": answer(p), "finish_reason": "stop"} for i, p in enumerate(prompts)]
            data = json.dumps({"choices": choices, "usage": {}}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.request_queue_size = 64
    port.put(httpd.server_address[1])
    httpd.serve_forever()


class Spent(NamedTuple):
    """Seconds of a command: by the clock, of the processor, until its first request, and from that to the last."""

    clock: float
    cpu: float
    first: float
    asking: float
    requests: int


def ran(words: Sequence[str], folder: Path, asked: Any) -> Spent:
    """Runs a command in a folder. Ends everything with its output where it fails."""
    asked[:] = (0.0, 0.0, 0.0)
    environment = {**os.environ, "NLTK_DATA": str(folder / "nltk"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    environment |= {"HF_HOME": str(folder / "hub"), "OPENAI_API_KEY": "none", "COLUMNS": "200"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    clock, after = time.time() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(clock, cpu, asked[0] - began, asked[1] - asked[0], int(asked[2]))


def lines(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(paths) for line in path.read_text().splitlines()]


def harness(name: str, url: str, args: argparse.Namespace, more: Sequence[str]) -> list[str]:
    """Returns lm-evaluation-harness's command for some tasks, whose answers it writes to a folder of that name."""
    model = f"model=none,base_url={url}/completions,tokenizer={args.tokenizer.resolve()},tokenized_requests=False"
    model += f",num_concurrent={args.slots},max_length={2 * args.length},max_retries=3"
    run = [sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", model]
    return [*run, "--limit", str(args.count), "--log_samples", "--output_path", name, *more]


def asked_by_all(url: str, args: argparse.Namespace, folder: Path, asked: Any) -> list[tuple[Any, ...]]:
    """Has the three sides ask the server. Returns for each: seconds, and how many answers are right and the same."""
    ours = [sys.executable, "-m", "levelfield"]
    files = str(args.tokenizer.resolve())
    tasks, tokenizer = ",".join(TASKS), ["--tokenizer", files]
    samples = ["--tasks", tasks, "--lengths", str(args.length), "--count", str(args.count), "--variant", "official"]
    subprocess.run([*ours, "export", "ruler", *tokenizer, *samples], cwd=folder, check=True, capture_output=True)
    server = [url, "--model", "none", "--at-once", str(args.slots)]
    spent = [ran([*ours, "ruler", *server, *tokenizer, *samples], folder, asked)]
    metadata = ["--metadata", json.dumps({"max_seq_lengths": [args.length], "tokenizer": files})]
    spent.append(ran(harness("own", url, args, ["--tasks", tasks, *metadata]), folder, asked))
    include = ["--tasks", "levelfield_ruler", "--include_path", "tasks"]
    spent.append(ran(harness("exported", url, args, include), folder, asked))
    stored = lines([folder / "runs/ruler/none-served/predictions.jsonl"])
    here = {(p["task"], p["index"]): p["text"] for p in stored}
    own, exported = (lines([*(folder / name).rglob("samples_*.jsonl")]) for name in ("own", "exported"))
    same = sum(here[p["doc"]["task"], p["doc"]["index"]] == p["resps"][0][0] for p in exported)
    right = [sum(p["references"][0] in p["text"] for p in stored)]
    right += [sum(p["doc"]["outputs"][0] in p["resps"][0][0] for p in side) for side in (own, exported)]
    return list(zip(spent, right, ("", "", same)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder that transformers reads")
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--delay", type=float, default=0.2)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--count", type=int, default=500, help="questions of each of two tasks")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    port: multiprocessing.Queue[int] = multiprocessing.Queue()
    asked = multiprocessing.Array("d", 3, lock=False)
    server = multiprocessing.Process(target=serve, args=(args.slots, args.delay, port, asked), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port.get()}/v1"
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "nltk/tokenizers/punkt_tab").mkdir(parents=True)
        found = asked_by_all(url, args, Path(name), asked)
    server.terminate()
    rows = []
    for side, (spent, right, same) in zip(SIDES, found):
        times = (spent.clock, spent.requests / spent.clock, spent.cpu, spent.first, spent.asking)
        what = (side, spent.requests, args.slots, args.delay, args.length, args.tokenizer.name)
        rows.append((*what, *(f"{n:.4g}" for n in times), right, same, machine()))
        print(dict(zip(COLUMNS, rows[-1])), flush=True)
    append(args.out, COLUMNS, rows)


if __name__ == "__main__":
    main()
