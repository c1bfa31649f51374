"""What the router adds to a hand-off: the same legs by a plain client, and through the router.

    python benchmarks/handoff.py [--requests N]

Stand-ins of the protocols answer at once, in a process of their own; so the time of a request by
hand (prefill, then decode, on connections kept open) is the hand-off's own, and what is beyond it
with the router is the router's. Both in turns, in one run; medians and their difference.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median

PATH = "/v1/chat/completions"
TARGET_MS = 1.0
ROUNDS = 5
WARM_UP = 50
PROMPT = "The points were set for the down line. " * 100  # about a thousand tokens
BODY = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": PROMPT}]}
ANSWER = {
    "choices": [{"message": {"role": "assistant", "content": "ok"}}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 1},
    "kv_transfer_params": {"remote_block_ids": [list(range(64))], "remote_host": "127.0.0.1"},
    "total_slots": 8,
    "n_written": 2_500_000,
}
# The calls of each protocol in their order: to whom, and where.
LEGS = {
    "nixl": [("prefill", PATH), ("decode", PATH)],
    "shared_storage": [("prefill", PATH), ("decode", PATH)],
    "llamacpp": [
        ("prefill", PATH),
        ("prefill", "/slots/0?action=save"),
        ("decode", "/slots/0?action=restore"),
        ("decode", PATH),
    ],
}


class StandIn(BaseHTTPRequestHandler):
    """Answers everything at once."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


def stand_ins() -> None:
    """Two of them; their ports are printed, and they end with the parent's pipe."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), StandIn) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(*(server.server_address[1] for server in servers), flush=True)
    sys.stdin.read()


class Client:
    """Connections that are kept open, by port."""

    def __init__(self) -> None:
        self._open: dict[int, http.client.HTTPConnection] = {}

    def post(self, port: int, path: str, body: bytes) -> None:
        connection = self._open.get(port)
        if connection is None:
            connection = self._open[port] = http.client.HTTPConnection("127.0.0.1", port)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path} was answered with {answer.status}")


def spawn(stack: ExitStack, command: list[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def measured(handoff: str, requests: int) -> tuple[float, float]:
    """Medians, in ms: by hand, and through the router."""
    with ExitStack() as stack:
        fakes = spawn(stack, [sys.executable, __file__, "--stand-ins"])
        prefill, decode = map(int, fakes.stdout.readline().split())
        flags = ["--listen", "127.0.0.1:0", "--models-interval-s", "0", "--scrape-interval-s", "0"]
        urls = [f"http://127.0.0.1:{port}" for port in (prefill, decode)]
        pair = ["--prefill", urls[0], "--decode", urls[1], "--handoff", handoff]
        command = [sys.executable, "-m", "pointsman", "serve", *flags, *pair]
        line = spawn(stack, command).stdout.readline()
        port = int(line.partition("127.0.0.1:")[2].partition(";")[0])
        client, body = Client(), json.dumps(BODY).encode()
        ports = {"prefill": prefill, "decode": decode}

        def by_hand() -> None:
            for who, path in LEGS[handoff]:
                client.post(ports[who], path, body if path == PATH else b'{"filename":"f"}')

        def routed() -> None:
            client.post(port, PATH, body)

        times: dict[str, list[float]] = {"by hand": [], "routed": []}
        for number in range(ROUNDS + 1):
            for name, act in (("by hand", by_hand), ("routed", routed)):
                took = [_timed_ms(act) for _ in range(requests if number else WARM_UP)]
                times[name] += took if number else []
        return median(times["by hand"]), median(times["routed"])


def _timed_ms(act: Callable[[], None]) -> float:
    begun_s = time.perf_counter()
    act()
    return (time.perf_counter() - begun_s) * 1000.0


def main() -> None:
    """Print the table; exit code 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=200, help="a round (default: 200)")
    parser.add_argument("--stand-ins", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.stand_ins:
        stand_ins()
        return
    print(f"cores: {len(os.sched_getaffinity(0))}")
    print("| protocol | by hand, p50 ms | routed, p50 ms | x | added, ms | target, ms |")
    print("|---|---|---|---|---|---|")
    missed = False
    for handoff in LEGS:
        own, routed = measured(handoff, arguments.requests)
        missed |= routed - own > TARGET_MS
        shown = f"{routed - own:.2f}" if routed - own <= TARGET_MS else f"**{routed - own:.2f}**"
        print(
            f"| {handoff} | {own:.2f} | {routed:.2f} | {routed / own:.2f} | {shown} | {TARGET_MS} |"
        )
    sys.exit(int(missed))


if __name__ == "__main__":
    main()
