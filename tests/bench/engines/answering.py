"""What the stand-ins answer to a load: a word is a token, and as many come back as were asked for.

Shapes: vLLM 0.32's, run; a chunk a token with the running count, then one without choices.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread

from tests.bench.engines.http_stand_in import Route, serving

MODEL = "m"
QUEUE_MS = 10  # that vLLM's histogram says of every request


@dataclass
class Answering:
    """``asked``: bodies, the client's first questions among them, which want one token.

    ``ms_a_token``: the pace; ``is_vllm``: whether there is vLLM's page of metrics, and its way to
    reset the cache; ``status``: of every answer to the load, ``first_status``: to the questions.
    """

    ms_a_token: float = 0.0
    is_vllm: bool = True
    status: int = 200
    first_status: int = 200
    asked: list[dict] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def prompts(self, max_tokens: int) -> list[str]:
        """Of the load: those that wanted as many tokens."""
        return [body["prompt"] for body in self.asked if body["max_tokens"] == max_tokens]

    def complete(self, body: dict) -> tuple[int, object]:
        self.asked.append(body)
        status = self.first_status if body["max_tokens"] == 1 else self.status
        if status != 200:
            return status, {"error": {"message": "it is out of order"}}
        prompt, output = words(body["prompt"]), body["max_tokens"]
        if body.get("stream"):
            return 200, self._events(prompt, output)
        choice = {"index": 0, "text": " x" * output, "finish_reason": "length"}
        return 200, {"choices": [choice], "usage": usage(prompt, output)}

    def _events(self, prompt: int, output: int) -> Iterator[object]:
        for made in range(1, output + 1):
            time.sleep(self.ms_a_token / 1e3)
            finish = "length" if made == output else None
            choice = {"index": 0, "text": " x", "finish_reason": finish}
            yield {"choices": [choice], "usage": usage(prompt, made)}
        yield {"choices": [], "usage": usage(prompt, output)}

    def page(self) -> str:
        """Of vLLM's histogram of queue times: all requests together."""
        name, count = "vllm:request_queue_time_seconds", len(self.asked)
        return f"{name}_sum {count * QUEUE_MS / 1e3}\n{name}_count {count}\n"

    def load_routes(self) -> dict[str, Route]:
        """What a load asks for."""
        return {
            "POST /tokenize": lambda body: (200, {"count": words(body["prompt"])}),
            "POST /v1/completions": self.complete,
        }

    def routes(self) -> dict[str, Route]:
        """All of a server that runs already."""
        told = {
            "GET /version": lambda _: (200, {"version": "0.32.0"}),
            "GET /metrics": lambda _: (200, self.page()),
            "POST /reset_prefix_cache": lambda _: (200, {"success": True}),
        }
        return {
            "GET /health": lambda _: (200, ""),
            "GET /v1/models": lambda _: (200, {"data": [{"id": MODEL}]}),
            **self.load_routes(),
            **(told if self.is_vllm else {}),
        }


def words(prompt: str) -> int:
    return len(prompt.split())


def usage(prompt: int, output: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


@contextmanager
def answering(**settings) -> Iterator[Answering]:
    """A server of this process, in a thread."""
    engine = Answering(**settings)
    server = serving("127.0.0.1", 0, engine.routes())
    engine.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
