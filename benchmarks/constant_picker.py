"""What a pick costs of gRPC alone: a picker that reads nothing and says the same each time.

    python benchmarks/constant_picker.py DESTINATION [--usual-threads]

Listens on a free port of 127.0.0.1, which it prints as ``pointsman pick`` does. The threads of
gRPC wait their turn as those of ``pick`` do, or are scheduled as usual.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import nullcontext

import grpc
import uvloop

from pointsman.picker.protocol import PROCESS, SERVICE
from pointsman.picker.replies import Replies
from pointsman.picker.scheduling import threads_that_wait_their_turn


async def answer(destination: str, *, usual_threads: bool) -> None:
    reply = Replies().goes_to("request_body", destination, has_head=False)

    async def process(messages: object, context: grpc.aio.ServicerContext) -> None:
        while isinstance(await context.read(), bytes):
            await context.write(reply)

    handlers = {PROCESS: grpc.stream_stream_rpc_method_handler(process)}
    with nullcontext() if usual_threads else threads_that_wait_their_turn():
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    print(f"listening on grpc://127.0.0.1:{port}; constant answers", flush=True)
    await told.wait()
    await server.stop(0)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(answer(sys.argv[1], usual_threads="--usual-threads" in sys.argv))
