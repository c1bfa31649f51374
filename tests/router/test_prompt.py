import hashlib
import json

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.errors import InputError
from pointsman.router.canonical import CanonicalBytes, add_prompt
from pointsman.router.messages import ClientRequest
from pointsman.router.prompt import QuestionReader, chain_of, request_id_of
from tests.router.routers import chat, completion

KEY = b"k" * 16
LONG = "All happy families are alike. " * 40  # 1,200 characters


def question(body, path="/v1/chat/completions", **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    request = ClientRequest(b"POST", path.encode(), pairs, data, True, True)
    return QuestionReader(KEY).question(request, "id")


def of_completion(body, **headers):
    return question(body, "/v1/completions", **headers)


def shared_blocks(one, other) -> int:
    pairs = zip(one.chain.hashes, other.chain.hashes, strict=False)
    return sum(mine == theirs for mine, theirs in pairs)


def test_a_token_is_taken_to_be_four_bytes():
    assert of_completion(completion("x" * 401)).prompt_tokens == 101
    assert of_completion(completion("")).prompt_tokens == 0
    assert of_completion(completion("\u4f60\u597d")).prompt_tokens == 2  # 6 bytes


def test_a_block_is_256_bytes_and_its_hash_covers_all_before_it():
    first = xxhash.xxh3_64_intdigest(b"x" * 256, xxhash.xxh3_64_intdigest(b"m"))
    second = xxhash.xxh3_64_intdigest(b"y" * 256, first)
    chain = chain_of(b"x" * 256 + b"y" * 256 + b"z" * 255, "m")
    assert chain.hashes == [first, second]
    assert chain.block_tokens == 64


def test_at_most_512_blocks_are_hashed():
    assert len(chain_of(bytes(1 << 20), "m").hashes) == 512


@given(st.binary(max_size=2000), st.binary(max_size=2000))
def test_two_prompts_share_as_many_blocks_as_their_common_start_fills(one, other):
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    pairs = zip(chain_of(one, "m").hashes, chain_of(other, "m").hashes, strict=False)
    assert sum(mine == theirs for mine, theirs in pairs) == common // 256


def test_a_growing_conversation_keeps_its_prefix():
    turns = [{"role": "system", "content": LONG}, {"role": "user", "content": "One."}]
    before = question({"messages": turns})
    after = question({"messages": [*turns, {"role": "assistant", "content": LONG}]})
    assert len(before.chain.hashes) == 4
    assert shared_blocks(before, after) == 4


def test_another_model_shares_nothing():
    one = of_completion(completion(LONG, model="a"))
    other = of_completion(completion(LONG, model="b"))
    assert shared_blocks(one, other) == 0


def test_text_is_the_same_as_a_string_and_as_a_part():
    parts = [{"type": "text", "text": LONG}]
    assert question(chat(LONG)) == question({**chat(), "messages": [_user(parts)]})


def test_escapes_in_json_do_not_matter():
    plain = b'{"prompt":"' + "\u00e9".encode() * 200 + b'"}'
    escaped = b'{"prompt":"' + b"\\u00e9" * 200 + b'"}'
    assert of_completion(plain) == of_completion(escaped)


def test_images_tools_and_tool_calls_are_part_of_the_prefix():
    def asked(image="a", tool="b", call="c"):
        part = {"type": "image_url", "image_url": {"url": image}}
        assistant = {"role": "assistant", "tool_calls": [{"id": call * 300}]}
        messages = [assistant, _user([part]), {"role": "user", "content": LONG}]
        return question({"messages": messages, "tools": [{"name": tool * 300}]})

    assert shared_blocks(asked(), asked()) == len(asked().chain.hashes)
    assert shared_blocks(asked(), asked(tool="x")) == 0
    assert 0 < shared_blocks(asked(), asked(call="x")) < shared_blocks(asked(), asked(image="x"))


@pytest.mark.parametrize("kind", ["image_url", "input_audio"])
def test_an_image_or_a_sound_is_1024_tokens_however_many_bytes_it_has(kind):
    def asked(data):
        return question({"messages": [_user([{"type": kind, kind: {"data": data}}])]})

    empty = question({"messages": [_user("")]})
    assert asked("a").prompt_tokens == empty.prompt_tokens + 1024
    assert asked("a" * 99_999).prompt_tokens == empty.prompt_tokens + 1024
    assert shared_blocks(asked("a" * 99_999), asked("a" * 99_998 + "b")) == 0


def test_an_image_counts_the_same_wherever_its_bytes_lie_in_the_body():
    part = {"type": "image_url", "image_url": {"url": "data:" + "a" * 500}}
    body = {"messages": [_user([part, {"type": "text", "text": LONG}])]}
    later = {"unheard_of": "x" * 777, **body}
    assert question(body).chain == question(later).chain


def test_spaces_and_escapes_in_tools_do_not_matter_and_empty_tools_are_none():
    tools = [{"type": "function", "function": {"name": "é", "parameters": {"a": 1}}}]
    spaced = json.dumps({"messages": [_user(LONG)], "tools": tools}, indent=3)
    dense = json.dumps({"messages": [_user(LONG)], "tools": tools}, separators=(",", ":"))
    unescaped = json.dumps({"messages": [_user(LONG)], "tools": tools}, ensure_ascii=False)
    assert question(spaced.encode()) == question(dense.encode()) == question(unescaped.encode())
    without = question({"messages": [_user(LONG)]})
    assert question({"messages": [_user(LONG)], "tools": []}) == without
    assert question({"messages": [_user(LONG)], "tools": None}) == without


def test_the_order_of_a_bodys_keys_does_not_matter():
    one = {"model": "m", "messages": [{"role": "user", "content": LONG}], "tools": [{"a": 1}]}
    other = {"tools": [{"a": 1}], "messages": [{"content": LONG, "role": "user"}], "model": "m"}
    assert question(one) == question(other)


def test_what_a_text_says_cannot_pass_for_another_message():
    one = [_user("a"), {"role": "user", "content": LONG}]
    other = [_user("a\nuser\n" + LONG)]
    assert shared_blocks(question({"messages": one}), question({"messages": other})) == 0


def test_names_reasoning_and_the_borders_of_parts_count():
    plain = {"role": "assistant", "content": LONG}
    asked = [
        question({"messages": [message]})
        for message in (
            plain,
            {**plain, "name": "Ann"},
            {**plain, "reasoning_content": "Hm."},
            {**plain, "content": [{"text": LONG[:9]}, {"text": LONG[9:]}]},
        )
    ]
    assert len({each.chain.hashes[0] for each in asked}) == 4


def test_a_part_may_be_a_plain_string():
    assert question({"messages": [_user([LONG])]}) == question({"messages": [_user(LONG)]})


def test_other_salts_share_nothing():
    one = of_completion(completion(LONG, cache_salt="a"))
    other = of_completion(completion(LONG, cache_salt="b"))
    plain = of_completion(completion(LONG))
    assert len({each.chain.hashes[0] for each in (one, other, plain)}) == 3


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\u4f60"])
def test_of_a_long_prompt_only_the_first_512_blocks_are_copied_and_all_of_it_is_counted(letter):
    out = CanonicalBytes(512 * 256)
    text = letter * 700_000
    add_prompt(out, text)
    assert bytes(out.kept) == text.encode()[: 512 * 256]
    assert out.length == len(text.encode())


@given(st.lists(st.text(alphabet="ab\u00e9\u4f60", max_size=9), max_size=9), st.integers(0, 40))
def test_what_is_kept_is_the_beginning_of_what_was_added(texts, room):
    out = CanonicalBytes(room)
    for text in texts:
        out.add_text(text)
    whole = "".join(texts).encode()
    assert (bytes(out.kept), out.length) == (whole[:room], len(whole))


def test_of_many_token_ids_the_first_32768_are_hashed():
    ids = list(range(100_000))
    asked = of_completion(completion(ids))
    assert (asked.prompt_tokens, len(asked.chain.hashes)) == (100_000, 512)
    assert asked.chain == of_completion(completion(ids[:32_768])).chain


def test_several_prompts_are_not_the_same_as_one():
    one = of_completion(completion([LONG + LONG]))
    two = of_completion(completion([LONG, LONG]))
    assert one == of_completion(completion(LONG + LONG))
    assert shared_blocks(one, two) == 1200 // 256


def test_token_ids_are_counted_exactly():
    ids = list(range(130))
    asked = of_completion(completion(ids))
    assert asked.prompt_tokens == 130
    assert len(asked.chain.hashes) == 2
    assert of_completion(completion([ids])) == asked


@pytest.mark.parametrize(
    ("limits", "tokens"),
    [
        ({}, 256),
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 7, "max_completion_tokens": 9}, 9),
        ({"max_tokens": -1}, 256),
        ({"max_tokens": None}, 256),
    ],
)
def test_the_output_is_priced_at_the_limit_or_at_256_tokens(limits, tokens):
    assert question(chat(**limits)).output_tokens == tokens


def session_of(reader, body, *headers):
    request = ClientRequest(
        b"POST", b"/v1/chat/completions", list(headers), json.dumps(body).encode(), True, True
    )
    return reader.question(request, "id").session


def hashed(name):
    return hashlib.blake2b(name, key=KEY, digest_size=8).hexdigest()


def test_the_session_is_the_header_and_only_a_hash_of_it():
    assert question(chat()).session is None
    assert question(chat(user="Ann")).session is None
    assert question(chat(user="Ann"), x_session_id="s-1").session == hashed(b"s-1")
    assert question(b"", "/v1/models", x_session_id="s-1").session == hashed(b"s-1")


def test_the_user_is_the_session_only_where_that_was_asked_for_and_no_header_says_another():
    reader = QuestionReader(KEY, session_from_user=True)
    assert session_of(reader, chat(user="Ann")) == hashed(b"Ann")
    assert session_of(reader, chat()) is None
    assert session_of(reader, chat(user="Ann"), (b"x-session-id", b"s-1")) == hashed(b"s-1")


def test_the_sessions_header_has_the_name_that_was_chosen():
    reader = QuestionReader(KEY, session_header="x-conversation")
    headers = [(b"x-session-id", b"other"), (b"x-conversation", b"c-1")]
    assert session_of(reader, chat(), *headers) == hashed(b"c-1")


@pytest.mark.parametrize("name", ["", "X-Session", "a b", "a:", "\u00e9"])
def test_what_is_no_name_of_a_header_is_refused(name):
    with pytest.raises(InputError, match="sessions: header is"):
        QuestionReader(KEY, session_header=name)


@pytest.mark.parametrize(
    ("body", "path", "headers", "tokens"),
    [
        (b"no json", "/v1/embeddings", {}, 2),
        (b"\x1f\x8b", "/v1/chat/completions", {"content_encoding": "gzip"}, 1),
    ],
)
def test_what_is_not_read_has_an_unknown_prompt_and_a_price(body, path, headers, tokens):
    asked = question(body, path, **headers)
    assert asked.prompt_tokens == -1
    assert asked.chain.hashes == []
    assert asked.path == path
    assert (asked.unread_tokens, asked.output_tokens) == (tokens, 256)


def test_the_path_is_that_of_a_target_in_any_form():
    assert of_completion(completion()).path == "/v1/completions"
    asked = question(completion(), "http://host:1/v1/completions?key=secret")
    assert asked.path == "/v1/completions"
    assert asked.prompt_tokens == 2


def test_an_empty_request_id_counts_as_none():
    request = ClientRequest(b"GET", b"/", [(b"x-request-id", b"")], b"", True, True)
    assert len(request_id_of(request)) == 32
    assert request_id_of(request) != request_id_of(request)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("limit", ["-2", "2147483648", "1" + "0" * 400, "1" + "0" * 5000])
def test_a_limit_that_is_no_number_of_tokens_is_refused_by_its_name(name, limit):
    with pytest.raises(InputError, match=rf"at `\$\.{name}`"):
        question(f'{{"messages":[],"{name}":{limit}}}'.encode())


def test_numbers_beyond_a_token_id_are_refused():
    with pytest.raises(InputError, match=r"at `\$\.prompt\[0\]`"):
        of_completion(completion([1 << 32]))


def _user(content):
    return {"role": "user", "content": content}
