"""What OpenAI's Python client does through a router: python examples/openai_client.py URL

URL: that of the router with /v1, such as http://127.0.0.1:8080/v1. Needs ``pip install openai``.
"""

from __future__ import annotations

import asyncio
import sys

from openai import AsyncOpenAI, BadRequestError, OpenAI

HELLO = [{"role": "user", "content": "Hello"}]


def one_by_one(url: str) -> str:
    """One request of each kind; the model that is served."""
    client = OpenAI(base_url=url, api_key="none")
    model = client.models.list().data[0].id
    print("model:", model)

    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=HELLO, max_tokens=8
    )
    print("chat:", raw.parse().usage)
    for name, value in raw.headers.items():
        if name.startswith("x-pointsman"):
            print(f"  {name}: {value}")

    stream = client.chat.completions.create(
        model=model,
        messages=HELLO,
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    print("stream:", len(chunks), "chunks,", chunks[-1].usage)

    print("completion:", client.completions.create(model=model, prompt="Once", max_tokens=8).usage)

    abandoned = client.completions.create(model=model, prompt="Once", max_tokens=200, stream=True)
    next(iter(abandoned))
    abandoned.close()
    print("a stream was closed early")

    try:
        client.chat.completions.create(model=model, messages="wrong", max_tokens=4)
    except BadRequestError as error:
        print("a wrong body:", error.code)
    return model


async def at_once(url: str, model: str, requests: int = 40) -> None:
    """Many, in five sessions."""
    client = AsyncOpenAI(base_url=url, api_key="none")
    answers = await asyncio.gather(
        *(
            client.chat.completions.create(
                model=model,
                messages=HELLO,
                max_tokens=4,
                extra_headers={"x-session-id": str(number % 5)},
            )
            for number in range(requests)
        )
    )
    print(len(answers), "at once")


if __name__ == "__main__":
    asyncio.run(at_once(sys.argv[1], one_by_one(sys.argv[1])))
