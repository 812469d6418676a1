"""Measures questions per second of a model behind a server, ours against bare requests: what the client costs.

    python benchmarks/served_requests.py [--slots 16] [--delay 0.2] [--lengths 2048 4096] [--out FILE.csv]

The server is a process of its own that answers each request after a fixed time and takes as many at once as it has
slots, so its own limit is slots / delay. The bare side sends requests that were made before, over kept connections, and
reads the replies. Ours is all of `levelfield ruler`: it generates samples and baselines, asks, checks, scores nothing
and stores every answer. Both are the best of several rounds, in turns.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import multiprocessing
import os
import platform
import tempfile
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.served.asking import Served, evaluate
from levelfield.longcontext.served.client import Address, Client
from levelfield.longcontext.served.lengths import Approximate
from levelfield.longcontext.served.way import Way
from levelfield.ruler import named

TASKS = ("niah_single_1", "niah_single_2", "niah_multikey_1", "niah_multivalue", "vt", "cwe", "fwe", "niah_multikey_2")
COLUMNS = ("slots", "delay_s", "lengths", "questions", "limit_per_s", "bare_per_s", "levelfield_per_s", "machine")
REPLY = json.dumps({"choices": [{"text": " 1234567", "finish_reason": "stop"}], "usage": {}}).encode()


def serve(slots: int, delay: float, port: multiprocessing.Queue[int]) -> None:
    """Runs the server until the process is ended."""
    free = threading.Semaphore(slots)

    class Handler(BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def log_message(self, format: str, *args: object) -> None: ...

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            with free:
                time.sleep(delay)
            self.send_response(200)
            self.send_header("Content-Length", str(len(REPLY)))
            self.end_headers()
            self.wfile.write(REPLY)

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.put(httpd.server_address[1])
    httpd.serve_forever()


def bare(port: int, slots: int, bodies: Sequence[bytes]) -> float:
    """Seconds in which as many threads as there are slots send these requests."""
    todo = iter(bodies)
    lock = threading.Lock()

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while True:
            with lock:
                body = next(todo, None)
            if body is None:
                break
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            json.loads(connection.getresponse().read())
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(slots)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def ours(port: int, slots: int, evaluation: Evaluation) -> float:
    """Seconds in which levelfield asks the same number of questions, into an empty folder."""
    address = Address.of(f"http://127.0.0.1:{port}/v1")
    with tempfile.TemporaryDirectory() as folder, Client(address, None, connections=slots) as client:
        served = Served(client, "none", Way("text"), Approximate())
        start = time.perf_counter()
        evaluate(served, [served.put(evaluation)], Path(folder), slots)
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--delay", type=float, default=0.2)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 4096, 8192])
    parser.add_argument("--count", type=int, default=100, help="questions of each of eight tasks at each length")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    tasks = tuple(map(named, TASKS))
    evaluation = Evaluation(tasks, tuple(args.lengths), count=args.count)
    samples = [sample for _, _, group in evaluation.groups(Approximate()) for sample in group]
    bodies = [json.dumps({"prompt": sample.text, "max_tokens": 128}).encode() for sample in samples]
    port: multiprocessing.Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(args.slots, args.delay, port), daemon=True)
    server.start()
    at, times = port.get(), []
    for _ in range(args.rounds):
        times.append((bare(at, args.slots, bodies), ours(at, args.slots, evaluation)))
        print(*(f"{len(bodies) / seconds:.1f} per second" for seconds in times[-1]), flush=True)
    server.terminate()
    best = [len(bodies) / min(side) for side in zip(*times)]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    limit = args.slots / args.delay
    row = (
        args.slots,
        args.delay,
        "|".join(map(str, args.lengths)),
        len(bodies),
        f"{limit:.1f}",
        *(f"{n:.1f}" for n in best),
        machine,
    )
    print(dict(zip(COLUMNS, row)))
    if args.out:
        new = not args.out.exists()
        with args.out.open("a", newline="") as file:
            csv.writer(file).writerows([COLUMNS, row] if new else [row])


if __name__ == "__main__":
    main()
