"""Heads and bodies whose end two servers could see differently: none of them reaches a replica.

The cases are those of RFC 9112, sections 2.2, 3.2, 5.1, 5.2, 6.1, 6.3, 7.1 and 11.2.
"""

import pytest

from tests.router.routers import bench, run

POST = b"POST /v1/x HTTP/1.1\r\nHost: t\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: t\r\n\r\n"

DOUBTFUL = {
    "a length and chunks": POST
    + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
    "chunks and a length": POST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nG",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "the same length twice": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "two lengths in a list": POST + b"Content-Length: 5, 6\r\n\r\nhello!",
    "a length with a sign": POST + b"Content-Length: +5\r\n\r\nhello",
    "a negative length": POST + b"Content-Length: -5\r\n\r\nhello",
    "a hexadecimal length": POST + b"Content-Length: 0x5\r\n\r\nhello",
    "an empty length": POST + b"Content-Length: \r\n\r\nhello",
    "a length of two words": POST + b"Content-Length: 1 5\r\n\r\nhello",
    "a length beyond 64 bits": POST + b"Content-Length: 18446744073709551621\r\n\r\nhello",
    "a folded line": POST + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "a line folded by a tab": POST + b"X: a\r\n\tb\r\nContent-Length: 0\r\n\r\n",
    "a folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a space before the first header": b"POST / HTTP/1.1\r\n Host: t\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 5\r\n\r\nhello",
    "a tab before the colon": POST + b"Content-Length\t: 5\r\n\r\nhello",
    "bare line feeds": b"POST / HTTP/1.1\nHost: t\n\n",
    "a bare line feed in a head": POST + b"X: a\nContent-Length: 0\r\n\r\n",
    "a bare line feed at its end": POST + b"Content-Length: 0\r\n\n",
    "a bare carriage return": POST + b"X: a\rContent-Length: 0\r\n\r\n",
    "a null character": POST + b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "another coding": POST + b"Transfer-Encoding: gzip\r\n\r\n",
    "another coding below chunks": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "another coding above chunks": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "identity": POST + b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello",
    "chunked twice": CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked, then identity": CHUNKED[:-2] + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "nearly chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked after a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunked in quotes": POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a size that is no number": CHUNKED + b"zz\r\n\r\n",
    "a size with a prefix": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a negative size": CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
    "no size": CHUNKED + b"\r\nhello\r\n0\r\n\r\n",
    "a size with a space": CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n",
    "a size beyond 64 bits": CHUNKED + b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "a size that ends in a bare line feed": CHUNKED + b"5\nhello\r\n0\r\n\r\n",
    "a chunk longer than its size": CHUNKED + b"5\r\nhello0\r\n\r\n",
    "a chunk that ends in a bare line feed": CHUNKED + b"5\r\nhello\n0\r\n\r\n",
    "an extension with a bare line feed": CHUNKED + b"5;a=b\nx\r\nhello\r\n0\r\n\r\n",
    "an extension with a bare carriage return": CHUNKED + b"5;a=\rb\r\nhello\r\n0\r\n\r\n",
    "a trailer with a bare line feed": CHUNKED + b"5\r\nhello\r\n0\r\nX: a\n\r\n",
    "two hosts": POST + b"Host: u\r\nContent-Length: 0\r\n\r\n",
    "a name with a space": POST + b"X Y: 1\r\nContent-Length: 0\r\n\r\n",
    "no name": POST + b": 1\r\nContent-Length: 0\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\n\r\n",
    "a target with a space": b"GET /a b HTTP/1.1\r\nHost: t\r\n\r\n",
    "a target with a fragment": b"GET /a#b HTTP/1.1\r\nHost: t\r\n\r\n",
    "an upgrade with another coding": POST
    + b"Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("sent", DOUBTFUL.values(), ids=DOUBTFUL.keys())
def test_a_request_without_a_certain_end_reaches_nobody_and_ends_the_connection(sent):
    async def main():
        async with bench() as at:
            at.client.writer.write(sent + HIDDEN)
            response = await at.client.response()
            rest = await at.client.reader.read()
            return response, rest, at.fake.requests, at.complaints

    response, rest, requests, complaints = run(main())
    assert response.status == 400
    assert response.headers["connection"] == "close"
    assert response.json["error"]["type"] == "invalid_request_error"
    assert (rest, requests, complaints) == (b"", [], [])


@pytest.mark.parametrize("sent", DOUBTFUL.values(), ids=DOUBTFUL.keys())
def test_it_is_the_same_when_it_comes_byte_by_byte(sent):
    async def main():
        async with bench() as at:
            await at.client.request("GET", "/first")
            connection = next(iter(at.router.edge.connections))
            for place in range(len(sent + HIDDEN)):
                connection.data_received((sent + HIDDEN)[place : place + 1])
            return (await at.client.response()).status, len(at.fake.requests)

    assert run(main()) == (400, 1)


def test_what_follows_a_request_that_closes_is_not_taken_for_another():
    async def main():
        async with bench() as at:
            head = POST + b"Connection: close\r\nContent-Length: 0\r\n\r\n"
            at.client.writer.write(head + HIDDEN)
            first = await at.client.response()
            return first.status, await at.client.reader.read(), len(at.fake.requests)

    assert run(main()) == (200, b"", 1)


def test_a_request_is_passed_on_with_a_length_of_ours_however_it_came():
    async def main():
        async with bench() as at:
            at.client.writer.write(CHUNKED + b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n")
            await at.client.response()
            at.client.writer.write(POST + b"Content-Length:5  \r\n\r\nabcde")
            await at.client.response()
            return at.fake.requests

    for request in run(main()):
        assert request.body == b"abcde"
        assert request.headers["content-length"] == "5"
        assert {"transfer-encoding", "trailer"}.isdisjoint(request.headers)


def test_nobody_speaks_in_our_name_and_traces_pass():
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def main():
        async with bench() as at:
            names = {"x_pointsman_reason": "mine", "X_Pointsman_Anything": "mine"}
            await at.client.request("GET", "/x", b"", traceparent=trace, tracestate="a=b", **names)
            return at.fake.requests[0].headers

    headers = run(main())
    assert headers["traceparent"] == trace
    assert headers["tracestate"] == "a=b"
    assert not [name for name in headers if name.startswith("x-pointsman")]
