"""A stand-in for ``sglang.launch_server`` 0.5.23: the flags and the HTTP that Pointsman uses, and
of prefill and decode only that both meet in a room. It has no model, and SGLang was not run.

Shapes: sgl-project/sglang, python/sglang/srt/server_args.py, entrypoints/http_server.py (health,
server_info, flush_cache) and sgl-model-gateway/src/routers/http/pd_types.rs (what both get). How
decode asks prefill for a cache is SGLang's own; here it is one GET at the bootstrap port.
"""

from __future__ import annotations

import argparse
import sys
import threading
import urllib.request
from pathlib import Path

from tests.bench.engines.http_stand_in import HERE, Loading, python_with, serving

PAGE = HERE.parents[1] / "router" / "engine" / "fixtures" / "sglang.txt"
MEETING_DEADLINE_S = 30


def sglang_at(folder: Path) -> str:
    """A Python with the stand-in installed as SGLang."""
    python = python_with(folder, {"sglang": "0.5.23"})
    package = folder / "site" / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(
        "from tests.bench.engines.sglang_stand_in import main\nmain()\n"
    )
    return str(python)


class Server:
    """``rooms``: the prefills that are done, each once."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.mode = asked.disaggregation_mode
        self.name = asked.served_model_name
        self.running = 0
        self.rooms: dict[int, threading.Event] = {}

    def complete(self, body: dict) -> tuple[int, object]:
        if self.mode == "prefill":
            self.rooms.setdefault(body["bootstrap_room"], threading.Event()).set()
            return 200, {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
        if self.mode == "decode":
            at = f"http://{body['bootstrap_host']}:{body['bootstrap_port']}"
            with urllib.request.urlopen(f"{at}/room{body['bootstrap_room']}"):
                pass
        choice = {"index": 0, "text": f"by {self.mode}", "finish_reason": "length"}
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        return 200, {"id": "1", "model": self.name, "choices": [choice], "usage": usage}

    def meet(self, path: str) -> tuple[int, object]:
        room = self.rooms.setdefault(int(path.removeprefix("GET /room")), threading.Event())
        return (200, {}) if room.wait(MEETING_DEADLINE_S) else (504, {})

    def flush(self, _: dict) -> tuple[int, object]:
        if self.running:
            return 400, "Flush cache failed.\n"
        return 200, "Cache flushed.\nPlease check backend logs for more details.\n"

    def routes(self) -> dict:
        return {
            "GET /health": Loading(3),
            "GET /server_info": lambda _: (200, {"version": "0.5.23", "tp_size": 1}),
            "GET /v1/models": lambda _: (200, {"data": [{"id": self.name}]}),
            "GET /metrics": lambda _: (200, PAGE.read_text()),
            "POST /flush_cache": self.flush,
            "POST /busy": lambda body: (200, setattr(self, "running", body["requests"])),
            "POST /v1/completions": self.complete,
        }


class Rooms(dict):
    """A route for every room."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def get(self, path: str):
        return lambda _: self.server.meet(path)


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("model-path", "served-model-name", "host", "port", "tp-size", "pp-size"):
        parser.add_argument(f"--{flag}", required=True)
    for flag in ("revision", "tokenizer-path", "dtype", "context-length", "max-running-requests"):
        parser.add_argument(f"--{flag}")
    for flag in ("enable-metrics", "enable-cache-report"):
        parser.add_argument(f"--{flag}", action="store_true", required=True)
    modes = ("null", "prefill", "decode")
    parser.add_argument("--disaggregation-mode", choices=modes, default="null")
    parser.add_argument("--disaggregation-transfer-backend", choices=("nixl", "mooncake"))
    parser.add_argument("--disaggregation-bootstrap-port", type=int)
    asked = parser.parse_args()
    print("stand-in for SGLang:", sys.argv[1:], flush=True)
    server = Server(asked)
    if asked.disaggregation_mode == "prefill":
        rooms = serving(asked.host, asked.disaggregation_bootstrap_port, Rooms(server))
        threading.Thread(target=rooms.serve_forever, daemon=True).start()
    serving(asked.host, int(asked.port), server.routes()).serve_forever()
