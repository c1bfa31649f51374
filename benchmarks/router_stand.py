"""What benchmarks/router.py stands on: stand-ins for replicas, proxies before them, and load.

Every process is pinned to a core, and ended by its id when the stand is left, whatever happens.
"""

from __future__ import annotations

import http.client
import json
import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).with_name("router_load.c")
START_DEADLINE_S = 120  # the first start of a version of the router compiles
STOP_DEADLINE_S = 20
LOAD_DEADLINE_S = 180
Process = subprocess.Popen[str]
Measured = dict[str, float]

MARK = "@" * 16  # becomes a number of the request's own

# What a client sends at least; OpenAI's own sends about a dozen more.
HEADERS = """POST /v1/chat/completions HTTP/1.1
host: router.example
accept: application/json
accept-encoding: gzip, deflate
user-agent: benchmark/1.0
authorization: Bearer sk-0123456789abcdef0123456789abcdef
content-type: application/json
content-length: {length}

"""


class NotStartedError(Exception):
    """A proxy does not serve."""


def request_of(prompt: str, options: str = "") -> bytes:
    """A chat request on the wire; ``options`` stand at the start of its body."""
    messages = [{"role": "user", "content": prompt}]
    body = f'{{{options}"model":"m","max_tokens":64,"messages":{json.dumps(messages)}}}'
    return (HEADERS.format(length=len(body)).replace("\n", "\r\n") + body).encode()


@dataclass(frozen=True)
class Load:
    """What one run of the load generator sends. ``rate``: 0 for a closed loop."""

    request: bytes
    connections: int
    requests: int
    rate: float = 0.0
    ramp_ms: float = 0.0


@dataclass(frozen=True)
class Cores:
    """Which core the proxies run on, and which the rest."""

    proxies: int
    load: int

    @classmethod
    def here(cls) -> Cores:
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            raise SystemExit("router.py needs two cores: one for the proxy, one for the load")
        return cls(cores[0], cores[-1])


@dataclass
class Proxy:
    """A process that listens on ``port``; ``ports``: those of what it stands for."""

    name: str
    ports: list[int]
    process: Process | None = None  # None: no proxy at all

    def cpu_us(self) -> float:
        """Time on a core of all threads since the start."""
        if self.process is None:
            return 0.0
        tasks = Path(f"/proc/{self.process.pid}/task")
        ns = (int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())
        return sum(ns) / 1e3

    def status(self, name: str) -> int:
        """A number in /proc/PID/status, such as VmRSS (in kB) or Threads."""
        assert self.process is not None
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
        raise KeyError(name)


@dataclass
class Stand:
    """Two replicas that answer at once, and whatever is started before them."""

    cores: Cores = field(default_factory=Cores.here)
    _exits: ExitStack = field(default_factory=ExitStack)
    _started: int = 0

    def __enter__(self) -> Stand:
        self.folder = Path(self._exits.enter_context(tempfile.TemporaryDirectory()))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65_536)), hard))
        self._program = self._built()
        replicas = self.spawn([self._program, "replicas", "2"], self.cores.load)
        self.replicas = [int(port) for port in replicas.stdout.readline().split()]
        return self

    def __exit__(self, *error: object) -> None:
        self._exits.close()

    def _built(self) -> str:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise SystemExit("router.py needs a C compiler (cc) for its load generator")
        program = str(self.folder / "router_load")
        subprocess.run([compiler, "-O2", "-o", program, str(SOURCE), "-lm"], check=True)
        return program

    def spawn(self, command: list[str], core: int, *, is_heard: bool = True) -> Process:
        """Start a process on that core; it ends with the stand. ``is_heard``: it says a line."""
        self._started += 1
        written = self._exits.enter_context((self.folder / f"output-{self._started}").open("w"))
        os.sched_setaffinity(0, {core})  # a process is born where its parent may run
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if is_heard else written,
            stderr=written,
            text=True,
            start_new_session=True,  # an interrupt of the terminal is this process's to handle
        )
        os.sched_setaffinity(0, {self.cores.load})
        self._exits.callback(end, process)
        return process

    def proxy(self, name: str, command: list[str], port: int | None = None) -> Proxy:
        """Start a proxy that prints its address, or listens on ``port``; wait until it serves."""
        process = self.spawn(command, self.cores.proxies, is_heard=port is None)
        if port is None:
            line = process.stdout.readline()
            if ":" not in line:
                raise NotStartedError(f"{name} did not start; try: {shlex.join(command)}")
            port = int(line.partition("127.0.0.1:")[2].partition(";")[0])
        proxy = Proxy(name, [port], process)
        wait_until_it_serves(proxy)
        return proxy

    def direct(self) -> Proxy:
        """No proxy: the load goes to the replicas themselves."""
        return Proxy("direct", self.replicas)

    def load(self, proxy: Proxy, load: Load) -> Measured:
        """Send it, and say what came of it."""
        return self.outcome(self.start_load(proxy, load))

    def start_load(self, proxy: Proxy, load: Load) -> Process:
        """Send it in the background."""
        pattern = self.folder / "request"
        pattern.write_bytes(load.request)
        ports = ",".join(str(port) for port in proxy.ports)
        numbers = (load.connections, load.requests, load.rate, load.ramp_ms)
        command = [self._program, "load", ports, *(str(each) for each in numbers), str(pattern)]
        return self.spawn(command, self.cores.load)

    def outcome(self, sending: Process) -> Measured:
        """What the load generator says once it is done."""
        printed, _ = sending.communicate(timeout=LOAD_DEADLINE_S)
        if sending.returncode:
            raise SystemExit(f"the load generator ended with {sending.returncode}")
        return json.loads(printed)

    def taken(self) -> tuple[int, int]:
        """Connections with a POST that the replicas took, and POSTs."""
        counts = json.loads(get(self.replicas[0], "/taken"))
        return counts["connections"], counts["posts"]


def end(process: Process) -> None:
    """Ask it to end, then make it end."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


def listen_overflows() -> int:
    """Connections that a full queue of any listener on this machine turned away, to try later."""
    names, values = Path("/proc/net/netstat").read_text().splitlines()[:2]
    return int(dict(zip(names.split(), values.split(), strict=True))["ListenOverflows"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_until_it_serves(proxy: Proxy) -> None:
    request = request_of("hello").partition(b"\r\n\r\n")[2]
    deadline_s = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline_s:
        if proxy.process is not None and proxy.process.poll() is not None:
            raise NotStartedError(f"{proxy.name} ended with {proxy.process.returncode}")
        connection = http.client.HTTPConnection("127.0.0.1", proxy.ports[0], timeout=5)
        try:
            connection.request(
                "POST", "/v1/chat/completions", request, {"content-type": "application/json"}
            )
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    raise NotStartedError(f"{proxy.name} does not serve after {START_DEADLINE_S} s")


# Proxies.

ENVOY_TYPES = "type.googleapis.com/envoy.extensions.filters"
ENVOY = """
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {types}.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: all
          codec_type: HTTP1
          stream_idle_timeout: 0s
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{prefix: "/"}}
                route: {{cluster: replicas, timeout: 0s}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": {types}.http.router.v3.Router
  clusters:
  - name: replicas
    type: STATIC
    lb_policy: ROUND_ROBIN
    circuit_breakers:
      thresholds:
      - {{max_connections: 65536, max_pending_requests: 65536, max_requests: 65536}}
    load_assignment:
      cluster_name: replicas
      endpoints:
      - lb_endpoints:{endpoints}
"""
ENDPOINT = """
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}"""


def envoy(stand: Stand, program: str) -> Proxy:
    """Envoy on one core, round robin, without access log, health checks or admin page."""
    port = free_port()
    endpoints = "".join(ENDPOINT.format(port=replica) for replica in stand.replicas)
    file = stand.folder / "envoy.yaml"
    file.write_text(ENVOY.format(port=port, endpoints=endpoints, types=ENVOY_TYPES))
    command = [program, "-c", str(file), "--concurrency", "1", "--log-level", "error"]
    return stand.proxy("envoy", [*command, "--use-dynamic-base-id"], port)


def pointsman(stand: Stand, policy: str, *flags: str, has_log: bool) -> Proxy:
    """``pointsman serve`` as it is by default, but for the flags."""
    command = [sys.executable, "-m", "pointsman", "serve", "--listen", "127.0.0.1:0"]
    for port in stand.replicas:
        command += ["--replica", f"http://127.0.0.1:{port}"]
    if has_log:
        command += ["--decision-log", str(stand.folder / f"{policy}.jsonl")]
    name = f"pointsman {policy}{' with a log' if has_log else ''}"
    return stand.proxy(name, [*command, "--policy", policy, *flags])


def rust_router(stand: Stand, name: str, program: str) -> Proxy:
    """sglang-router or vllm-router, whose flags are alike, with the policy that reads prefixes."""
    port = free_port()
    urls = [f"http://127.0.0.1:{replica}" for replica in stand.replicas]
    launch = ["launch"] if name == "sglang-router" else []
    flags = ["--host", "127.0.0.1", "--port", str(port), "--policy", "cache_aware"]
    flags += ["--prometheus-port", str(free_port()), "--log-level", "error"]
    return stand.proxy(name, [program, *launch, "--worker-urls", *urls, *flags], port)
