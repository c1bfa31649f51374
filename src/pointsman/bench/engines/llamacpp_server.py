"""llama.cpp's server as a program: ``python -m pointsman.bench.engines.llamacpp_server --help``.

It listens on loopback until SIGTERM. Source of the fields: xllamacpp 2026.10.11549, run.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from typing import Any

from pointsman.bench.installed import lacks


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = argparse.ArgumentParser(
        description="llama.cpp's server, of the xllamacpp wheel", allow_abbrev=False
    )
    made.add_argument("--model", required=True, metavar="FILE", help="GGUF")
    made.add_argument("--name", default="tiny", help="what requests call the model (%(default)s)")
    made.add_argument("--port", type=int, required=True)
    made.add_argument("--slots", type=int, default=8, help="requests at once (%(default)s)")
    made.add_argument("--context-tokens", type=int, default=4096, help="of each slot (%(default)s)")
    made.add_argument("--threads", type=int, default=1, help="that compute (%(default)s)")
    made.add_argument("--cores", metavar="N,N", help="that it may run on (all)")
    made.add_argument(
        "--cache-ram-mib", type=int, default=512, help="prompts kept beside the slots (%(default)s)"
    )
    made.add_argument("--slot-folder", metavar="FOLDER", help="where slots are saved")
    return made


def _parameters(asked: argparse.Namespace) -> Any:
    import xllamacpp

    made = xllamacpp.CommonParams()
    made.model.path = asked.model
    made.model_alias = {asked.name}
    made.hostnames = ["127.0.0.1"]
    made.port = asked.port
    made.n_ctx = asked.slots * asked.context_tokens
    made.n_parallel = asked.slots
    made.cont_batching = True
    made.cpuparams.n_threads = made.cpuparams_batch.n_threads = asked.threads
    made.endpoint_metrics = made.endpoint_slots = made.endpoint_props = True
    made.cache_ram_mib = asked.cache_ram_mib
    if asked.slot_folder:
        made.slot_save_path = f"{asked.slot_folder}/"
    made.n_gpu_layers = 0
    made.swa_full = True
    made.use_jinja = True
    return made


def main() -> None:
    """Serve until SIGTERM."""
    asked = parser().parse_args()
    if asked.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in asked.cores.split(",")})
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    try:
        import xllamacpp
    except ModuleNotFoundError as error:
        sys.exit(f"llama.cpp does not start: {lacks(error.name or 'xllamacpp', 'llamacpp')}")

    try:
        server = xllamacpp.Server(_parameters(asked))
    except RuntimeError as error:
        sys.exit(f"llama.cpp does not start with {asked.model}: {error}")
    print("listening on", server.listening_address, flush=True)
    told.wait()
    os._exit(0)  # its threads end with the process


if __name__ == "__main__":
    main()
