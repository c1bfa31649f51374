"""What is written while several requests are served goes at the end of the turn."""

import asyncio

from pointsman.router.outbox import Outbox, Sender


class Transport:
    def __init__(self):
        self.writes = []
        self.is_open = True

    def write(self, data):
        self.writes.append(data)

    def is_closing(self):
        return not self.is_open

    def get_write_buffer_size(self):
        return 0


def test_of_one_request_at_a_time_bytes_go_at_once():
    outbox, transport = Outbox(), Transport()
    outbox.served = 1
    sender = Sender(transport, outbox)
    sender.write(b"a")
    sender.write(b"b")
    assert transport.writes == [b"a", b"b"]


def test_of_several_they_go_together_at_the_end_of_the_turn_and_in_order():
    async def main():
        outbox, transport = Outbox(), Transport()
        outbox.served = 2
        sender = Sender(transport, outbox)
        sender.write(b"a")
        outbox.served = 1  # the other one has ended
        sender.write(b"b")
        assert (transport.writes, sender.unsent_bytes) == ([], 2)
        await asyncio.sleep(0)
        return transport.writes

    assert asyncio.run(main()) == [b"ab"]


def test_nothing_is_written_to_a_connection_that_closes():
    async def main():
        outbox, transport = Outbox(), Transport()
        sender = Sender(transport, outbox)
        outbox.served = 2
        sender.write(b"a")
        transport.is_open = False
        await asyncio.sleep(0)
        outbox.served = 1
        sender.write(b"b")
        return transport.writes

    assert asyncio.run(main()) == []
