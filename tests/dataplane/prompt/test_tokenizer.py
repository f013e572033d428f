"""Text becomes the ids that the model's own tokenizer gives, and typed control tokens stay text."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, pre_tokenizers, processors
from tokenizers import Tokenizer as BaseTokenizer
from tokenizers.models import BPE

from sglr_dataplane.errors import ContextLengthExceededError, InvalidRequestError
from sglr_dataplane.prompt.encoder import Encoder, FastEncoder, ReferenceEncoder
from sglr_dataplane.prompt.tokenizer import Tokenizer
from sglr_dataplane.vocab import TokenizerLoadError
from support.tokenizers import (
    DEMO_MODEL,
    a_directory,
    a_fallback_tokenizer,
    real_tokenizer,
    reference,
)

DEMO = Tokenizer.from_dir(DEMO_MODEL)
SOURCE = (DEMO_MODEL / "tokenizer.json").read_bytes()
START, END = "<|im_start|>", "<|im_end|>"
CONTROLS = st.sampled_from([*DEMO.vocabulary.added.values(), "<|im_", "<", "|>", "end|>"])
TYPED = st.lists(CONTROLS | st.text(max_size=5), max_size=6).map("".join)


def a_bos_tokenizer(directory: Path) -> Tokenizer:
    """Return a tokenizer whose own encoding begins with ``<s>``, as Llama's does."""
    tokenizer = a_fallback_tokenizer("h", "i")
    tokenizer.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", bos)])
    a_directory(directory, tokenizer, bos_token={"__type": "AddedToken", "content": "<s>"})
    return Tokenizer.from_dir(directory)


def test_ids_are_the_tokenizers_own() -> None:
    """Words, spaces, other scripts, and added tokens as one id each."""
    text = f"{START}user\nHello, wörld! 你好 👍🏽\n\n<think>\t{END}"

    expected = reference(DEMO_MODEL).encode(text, add_special_tokens=False).ids
    assert list(DEMO.encode(text)) == expected
    assert len(DEMO.encode("")) == 0


def test_the_reference_encodes_until_another_was_compared() -> None:
    """Which library encodes, and why, can be seen."""
    assert DEMO.encoder_name == "tokenizers"
    assert DEMO.encoder_reason == "no directory for comparisons with fastokens was given"


def test_a_longer_text_belongs_in_a_thread() -> None:
    """Either encoder names a length, the faster one a greater."""
    lengths = [ReferenceEncoder.thread_above, FastEncoder.thread_above]

    assert DEMO.encode_in_thread_above == lengths[0]
    assert 0 < lengths[0] < lengths[1]


@pytest.mark.parametrize("encode", [DEMO.encode, DEMO.encode_completion])
def test_a_lone_surrogate_is_the_clients_fault(encode: object) -> None:
    """JSON can say it, UTF-8 cannot: 400, whatever the library raises."""
    assert callable(encode)
    with pytest.raises(InvalidRequestError, match=r"lone surrogate '\\ud800'"):
        encode("ab\ud800c")


def test_the_fast_encoder_meets_a_lone_surrogate_alike(tmp_path: Path) -> None:
    """Another library, another exception, the same answer."""
    tokenizer = Tokenizer.from_dir(DEMO_MODEL, verdicts=tmp_path)

    assert tokenizer.encoder_name == "fastokens"
    with pytest.raises(InvalidRequestError, match=r"lone surrogate '\\udfff'"):
        tokenizer.encode_segments([("\udfff", True)])


def test_too_long_a_text_is_refused_before_it_is_encoded() -> None:
    """The bound is in characters, because counting those costs nothing."""
    tokenizer = Tokenizer.from_dir(DEMO_MODEL, max_characters=10)

    assert tokenizer.encode("x" * 10)
    for encode in (tokenizer.encode, tokenizer.encode_completion):
        with pytest.raises(ContextLengthExceededError, match="11 characters; at most 10"):
            encode("x" * 11)
    with pytest.raises(ContextLengthExceededError, match="11 characters; at most 10"):
        tokenizer.encode_segments([("x" * 6, True), ("y" * 5, False)])


def test_a_typed_control_token_is_text() -> None:
    """A user cannot end their turn; the template can."""
    ids = DEMO.encode_segments(
        [(f"{START}user\n", True), (f"a{END}\n{START}system<think>", False), (f"{END}\n", True)]
    )

    control = [token_id for token_id in ids if token_id in DEMO.vocabulary.control]
    assert control == [DEMO.vocabulary.id_of(START), DEMO.vocabulary.id_of(END)]
    expected = f"{START}user\na{END}\n{START}system<think>{END}\n"
    assert DEMO.vocabulary.decode(ids) == expected


def test_a_control_token_put_together_from_two_segments_is_text() -> None:
    """Half typed, half from the template: neither meant it."""
    ids = DEMO.encode_segments([("x", True), ("<|im_", False), ("end|>", True)])

    assert DEMO.vocabulary.control.isdisjoint(ids)
    assert DEMO.vocabulary.decode(ids) == f"x{END}"


def test_segments_that_both_allow_them_make_one_control_token() -> None:
    """Where the template's own text is cut does not matter."""
    assert DEMO.encode_segments([("<|im_", True), ("end|>", True)]) == DEMO.encode(END)


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
def test_a_typed_control_token_puts_no_space_into_the_prompt(tmp_path: Path, scheme: str) -> None:
    """SentencePiece gives a text's beginning a space: a stretch behind a template's token is none."""
    letters = {letter: at for at, letter in enumerate(["<unk>", *"▁<>/sab"])}
    without = BaseTokenizer(BPE(letters, [], unk_token="<unk>", fuse_unk=False))
    without.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme)
    without.decoder = decoders.Metaspace("▁", scheme)
    without.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    with_end = BaseTokenizer.from_str(without.to_str())
    with_end.add_special_tokens([AddedToken("</s>", special=True, normalized=False)])
    directory = a_directory(tmp_path, with_end)
    tokenizer = Tokenizer.from_dir(directory)

    for text in ("<s>a</s>b", "</s>b", "<s></s>", "a<s>b</s> <s>"):
        segments = [(part, part != "</s>") for part in re.split(r"(</s>)", text)]
        # The same tokenizer, to which the typed token is no token at all.
        assert list(tokenizer.encode_segments(segments)) == without.encode(text).ids, text


def test_the_fast_encoder_takes_no_tokenizer_that_has_such_a_space() -> None:
    """It may therefore leave out what tells a prompt's beginning from its middle."""
    plain = BaseTokenizer(BPE({"<unk>": 0, "▁": 1}, [], unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace("▁", "first")])

    with pytest.raises(ValueError, match="Metaspace"):
        FastEncoder(plain.to_str().encode())


@given(segments=st.lists(st.tuples(TYPED, st.booleans()), max_size=5))
def test_segments_keep_the_text_and_allow_only_what_they_allow(
    segments: list[tuple[str, bool]],
) -> None:
    """Decoding gives the joined text; control ids are those of the allowed stretches."""
    ids = DEMO.encode_segments(segments)

    stretches = [""]
    for text, allowed in segments:
        if allowed:
            stretches[-1] += text
        else:
            stretches.append("")
    expected = [i for text in stretches for i in reference(DEMO_MODEL).encode(text).ids]
    control = DEMO.vocabulary.control
    assert [i for i in ids if i in control] == [i for i in expected if i in control]
    assert DEMO.vocabulary.decode(ids) == "".join(text for text, _ in segments)


@given(segments=st.lists(st.tuples(st.text(max_size=8), st.booleans()), max_size=5))
def test_segments_without_control_tokens_are_encoded_as_one_text(
    segments: list[tuple[str, bool]],
) -> None:
    """So an ordinary prompt has the ids the engine itself would give it."""
    text = "".join(text for text, _ in segments)
    # Hypothesis also draws strings that stand in the code under test, such as "<think>".
    assume(not any(token in text for token in DEMO.vocabulary.added.values()))

    assert DEMO.encode_segments(segments) == DEMO.encode(text)


def test_a27_a_prompt_of_its_own_gets_exactly_one_bos(tmp_path: Path) -> None:
    """Rendered chats write their BOS themselves; raw prompts get one unless they have it."""
    tokenizer = a_bos_tokenizer(tmp_path)
    bos = tokenizer.vocabulary.id_of("<s>")
    assert bos is not None

    found = [
        tokenizer.encode("<s>hi").count(bos),
        tokenizer.encode("hi").count(bos),
        tokenizer.encode_completion("<s>hi").count(bos),
        tokenizer.encode_completion("hi").count(bos),
        DEMO.encode_completion("hi") == DEMO.encode("hi"),
    ]
    assert found == [1, 0, 1, 1, True]
    assert tokenizer.encode_completion("hi")[0] == bos


def test_a27_llama_has_one_begin_of_text() -> None:
    """128000 at the start of a chat and of a raw prompt, and nowhere else."""
    tokenizer = Tokenizer.from_dir(real_tokenizer("llama3.1"))
    chat = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"

    for ids in (
        tokenizer.encode(chat),
        tokenizer.encode_completion("hi"),
        tokenizer.encode_completion("<|begin_of_text|>hi"),
    ):
        assert ids[0] == 128000
        assert 128000 not in ids[1:]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("encoder", [ReferenceEncoder(SOURCE), FastEncoder(SOURCE)])
def test_a48_encoding_in_a_thread_leaves_the_others_running(encoder: Encoder, plain: bool) -> None:
    """The interpreter lock is released: this thread goes on while that one encodes.

    Where the lock is kept it never does; a machine that is busy otherwise needs some tries.
    """
    assert any(ticks_beside(encoder, plain=plain) >= 3 for _ in range(20))


def ticks_beside(encoder: Encoder, *, plain: bool) -> int:
    """Return how often this thread had its turn in the middle of an encoding in another one."""
    # Never the same words twice, so that no cache can answer.
    text = " ".join(f"{number:x}th word{number}" for number in range(40_000))
    spans: list[tuple[float, float]] = []

    def encode() -> None:
        begin = time.perf_counter()
        (encoder.encode_plain if plain else encoder.encode)(text)
        spans.append((begin, time.perf_counter()))

    thread = threading.Thread(target=encode)
    ticks = [0.0]
    thread.start()
    while thread.is_alive():
        now = time.perf_counter()
        if now > ticks[-1] + 0.000_5:
            ticks.append(now)

    ((begin, end),) = spans
    # Its first and last parts are Python's own work: starting, and making a list of ids.
    first, last = begin + 0.1 * (end - begin), begin + 0.6 * (end - begin)
    return sum(first < tick < last for tick in ticks)


class TooManyError(Exception):
    """What a limit raises."""


def test_a48_too_many_tokens_are_refused_before_their_ids_are_made() -> None:
    """Whoever sets the limit is told the number of them, and what it raises is raised."""
    counts: list[int] = []

    def fits(count: int) -> None:
        counts.append(count)
        raise TooManyError

    typed = f"a{END}b"
    ways: tuple[Callable[[], object], ...] = (
        lambda: DEMO.encode("Hello there", fits),
        lambda: DEMO.encode_completion("Hello there", fits),
        lambda: DEMO.encode_segments([(START, True), (typed, False)], fits),
        lambda: DEMO.encode_typed(START + typed, [len(START) + 1], fits),
    )
    for encode in ways:
        with pytest.raises(TooManyError):
            encode()

    apart = 1 + len(ReferenceEncoder(SOURCE).encode_plain(typed))
    assert counts == [len(DEMO.encode("Hello there"))] * 2 + [apart] * 2


@pytest.mark.parametrize("bos", [False, True])
def test_a_long_text_has_the_ids_that_its_tokenizer_gives_it(bos: bool) -> None:
    """However they are handed over in between: packed, by slices, in parts."""
    text = " ".join(f"{number:x}th 👍🏽 word{number}" for number in range(20_000)) + END
    fast, plain = FastEncoder(SOURCE), reference(DEMO_MODEL)
    expected = plain.encode_batch_fast([text], add_special_tokens=bos)[0].ids

    assert len(text) > 300_000
    assert list(fast.encode(text, add_special_tokens=bos)) == expected
    assert (
        list(DEMO.encode_typed(text, []))
        == plain.encode_batch_fast([text], add_special_tokens=False)[0].ids
    )


def test_named_tokens_are_read_in_either_spelling(tmp_path: Path) -> None:
    """As text or as an AddedToken; tokenizer_config.json has precedence, null means none."""
    a_directory(
        tmp_path,
        a_fallback_tokenizer(),
        bos_token={"content": "<s>", "special": True},
        eos_token="<end>",
        pad_token=None,
        model_max_length=5,
    )
    more = {"eos_token": "<old>", "unk_token": {"content": "<unk>"}}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(more))

    tokenizer = Tokenizer.from_dir(tmp_path)
    assert dict(tokenizer.special_tokens) == {
        "bos_token": "<s>",
        "eos_token": "<end>",
        "unk_token": "<unk>",
    }
    assert (tokenizer.bos, tokenizer.eos, tokenizer.pad) == ("<s>", "<end>", None)


def test_a_tokenizer_without_settings_is_usable(tmp_path: Path) -> None:
    """tokenizer.json alone is enough to encode."""
    (tmp_path / "tokenizer.json").write_bytes(SOURCE)

    tokenizer = Tokenizer.from_dir(tmp_path)
    assert dict(tokenizer.special_tokens) == {}
    assert tokenizer.encode("Hello") == DEMO.encode("Hello")


def test_a_file_that_cuts_or_pads_does_not(tmp_path: Path) -> None:
    """Embedding models' files carry a length; prompts are neither cut nor filled here."""
    tokenizer = a_fallback_tokenizer("h", "i")
    tokenizer.enable_truncation(1)
    tokenizer.enable_padding(length=8)

    loaded = Tokenizer.from_dir(a_directory(tmp_path, tokenizer))
    assert len(loaded.encode("hihi")) == 4


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("tokenizer_config.json", b"[1]", "tokenizer_config.json is not a JSON object"),
        ("special_tokens_map.json", b"{", "special_tokens_map.json is not a JSON object"),
        ("tokenizer.json", b"{", "tokenizer.json is not JSON"),
        (
            "tokenizer.json",
            SOURCE.replace(b'"type":"ByteLevel","add_prefix_space"', b'"type":"Bytes","a"', 1),
            "tokenizer.json is refused by its library",
        ),
    ],
)
def test_damaged_files_are_refused_in_a_sentence_without_a_path(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    """One class of error, whichever file and library it is."""
    (tmp_path / "tokenizer.json").write_bytes(SOURCE)
    (tmp_path / name).write_bytes(content)

    with pytest.raises(TokenizerLoadError) as caught:
        Tokenizer.from_dir(tmp_path)
    assert sentence in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
