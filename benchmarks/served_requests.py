"""Measures questions per second of a model behind a server, ours against bare requests: what the client costs.

    python benchmarks/served_requests.py [--slots 16] [--delay 0.2] [--lengths 2048 4096] [--out FILE.csv]

The server is a process of its own that answers each request after a fixed time and takes as many at once as it has
slots, so its own limit is slots / delay. The bare side sends requests that were made before, over kept connections, and
reads the replies. Ours is all of `levelfield ruler`: it generates samples and baselines, asks, checks, scores nothing
and stores every answer. Both are the best of several rounds, in turns. `steady` is the pace from the first answers, as
many as there are slots, to the last one: without what comes once, such as the samples of the first task. The CPU time
of a question, of all threads of the client and not of the server, says what the client costs on a machine that has
other work, too; that of making samples alone stands beside it.
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
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from levelfield.longcontext.evaluation import Evaluation
from levelfield.longcontext.served.asking import Served, evaluate
from levelfield.longcontext.served.client import Address, Client
from levelfield.longcontext.served.lengths import Approximate
from levelfield.longcontext.served.way import Way
from levelfield.ruler import Sample, named

TASKS = ("niah_single_1", "niah_single_2", "niah_multikey_1", "niah_multivalue", "vt", "cwe", "fwe", "niah_multikey_2")
RATES = ("limit_per_s", "bare_per_s", "levelfield_per_s")
STEADY = ("bare_steady_per_s", "levelfield_steady_per_s")
CPU = ("bare_cpu_ms", "levelfield_cpu_ms", "samples_cpu_ms")
COLUMNS = ("slots", "delay_s", "lengths", "questions", *RATES, *STEADY, *CPU, "machine")
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


class Spent(NamedTuple):
    """Seconds by the clock, and of the processor, by all threads of this process; and when answers came."""

    clock: float
    cpu: float
    answered: Sequence[float] = ()

    @staticmethod
    def by(work: Callable[[], object], answered: Sequence[float] = ()) -> Spent:
        clock, cpu = time.perf_counter(), time.process_time()
        work()
        return Spent(time.perf_counter() - clock, time.process_time() - cpu, answered)

    def steady(self, slots: int) -> float:
        """Returns the answers a second after the first ones, as many as there are slots."""
        times = sorted(self.answered)
        return (len(times) - slots) / (times[-1] - times[slots - 1])


def bare(port: int, slots: int, bodies: Sequence[bytes]) -> Spent:
    """What it takes as many threads as there are slots to send these requests."""
    todo, times = iter(bodies), list[float]()
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
            times.append(time.perf_counter())
        connection.close()

    def all_of_it() -> None:
        threads = [threading.Thread(target=work) for _ in range(slots)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return Spent.by(all_of_it, times)


def ours(port: int, slots: int, evaluation: Evaluation) -> Spent:
    """What it takes levelfield to ask the same number of questions, into an empty folder."""
    address, times = Address.of(f"http://127.0.0.1:{port}/v1"), list[float]()

    def note(found: object, new: bool) -> None:
        times.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder, Client(address, None, connections=slots) as client:
        served = Served(client, "none", Way("text"), Approximate())
        return Spent.by(lambda: evaluate(served, [served.put(evaluation)], Path(folder), slots, note), times)


def machine() -> str:
    """What a row says of where it was measured."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def append(path: Path | None, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Adds rows to a file of comma-separated values, with its columns where it is new; nothing without a path."""
    if path is None:
        return
    new = not path.exists()
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows] if new else rows)


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
    samples: list[Sample] = []
    made = Spent.by(lambda: samples.extend(s for _, _, group in evaluation.groups(Approximate()) for s in group))
    bodies = [json.dumps({"prompt": sample.text, "max_tokens": 128}).encode() for sample in samples]
    port: multiprocessing.Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(args.slots, args.delay, port), daemon=True)
    server.start()
    at, rounds = port.get(), list[tuple[Spent, Spent]]()
    for _ in range(args.rounds):
        rounds.append((bare(at, args.slots, bodies), ours(at, args.slots, evaluation)))
        print(*(f"{len(bodies) / spent.clock:.1f} per second" for spent in rounds[-1]), flush=True)
    server.terminate()
    best = [len(bodies) / min(spent.clock for spent in side) for side in zip(*rounds)]
    best += [max(spent.steady(args.slots) for spent in side) for side in zip(*rounds)]
    least = [
        1e3 * seconds / len(bodies) for seconds in (*(min(s.cpu for s in side) for side in zip(*rounds)), made.cpu)
    ]
    limit = args.slots / args.delay
    row = (
        args.slots,
        args.delay,
        "|".join(map(str, args.lengths)),
        len(bodies),
        *(f"{n:.4g}" for n in (limit, *best, *least)),
        machine(),
    )
    print(dict(zip(COLUMNS, row)))
    append(args.out, COLUMNS, [row])


if __name__ == "__main__":
    main()
