"""A worker's tokenizer comes whole, within bounds, or with a sentence that says what to do."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from contextlib import aclosing

import pytest

from sglr_dataplane.engine.bundles import BundleReader
from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.lean import LeanEngine, lean_engine
from sglr_dataplane.engine.sglang import SGLangEngine
from sglr_dataplane.errors import (
    DeadlineExceededError,
    RouterError,
    WorkerError,
    WorkerLostError,
    WorkerUnavailableError,
)
from sglr_dataplane.sim.script import RpcFault, Script, Status, StatusCode
from sglr_proto.sglang import common_pb2
from support.sim import DEMO_TOKENIZER, sim_worker

MakeEngine = Callable[..., LeanEngine | SGLangEngine]
BOTH = pytest.mark.parametrize("engine_to", [lean_engine, SGLangEngine])
SHORT = Deadlines(connect=0.3, bundle=0.3)


def a_chunk(data: bytes, sha256: str = "") -> common_pb2.GetTokenizerChunk:
    """Return one message of a worker's answer."""
    return common_pb2.GetTokenizerChunk(data=data, sha256=sha256)


@BOTH
async def test_the_tokenizer_comes_whole(engine_to: MakeEngine) -> None:
    """Every file, byte for byte, with a digest that is the archive's, over either client."""
    async with sim_worker() as worker, aclosing(engine_to(worker.address)) as engine:
        bundle = await engine.tokenizer_bundle()

    assert hashlib.sha256(bundle.archive).hexdigest() == bundle.sha256
    with zipfile.ZipFile(io.BytesIO(bundle.archive)) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    assert found == {path.name: path.read_bytes() for path in DEMO_TOKENIZER.iterdir()}


@BOTH
@pytest.mark.parametrize(
    ("code", "kind", "sentence"),
    [
        ("UNIMPLEMENTED", WorkerError, "does not offer its tokenizer; name one in spec.tokenizer"),
        ("FAILED_PRECONDITION", WorkerError, "has no tokenizer to offer; name one"),
        ("INTERNAL", WorkerError, "cannot read its own tokenizer's files; name one"),
        ("UNAVAILABLE", WorkerLostError, "went away"),
    ],
)
async def test_a_worker_without_it_says_what_to_do(
    engine_to: MakeEngine, code: StatusCode, kind: type[RouterError], sentence: str
) -> None:
    """Each way of not having a tokenizer ends in a sentence for whoever runs the backend."""
    fault = RpcFault(status=Status(code=code, message="no: /models/secret"))
    script = Script(rpcs={"GetTokenizer": fault})
    async with sim_worker(script) as worker, aclosing(engine_to(worker.address)) as engine:
        with pytest.raises(kind, match=sentence) as caught:
            await engine.tokenizer_bundle()

    assert "/models" not in str(caught.value)


@BOTH
async def test_a_worker_that_never_ends_is_given_up(engine_to: MakeEngine) -> None:
    """The download has a deadline of its own."""
    script = Script(rpcs={"GetTokenizer": RpcFault(hang=True)})
    async with (
        sim_worker(script) as worker,
        aclosing(engine_to(worker.address, deadlines=SHORT)) as engine,
    ):
        with pytest.raises(DeadlineExceededError):
            await engine.tokenizer_bundle()


@BOTH
async def test_nobody_there_is_unavailable(engine_to: MakeEngine) -> None:
    """As with every other call."""
    async with sim_worker() as worker:
        address = worker.address
    async with aclosing(engine_to(address, deadlines=SHORT)) as engine:
        with pytest.raises((WorkerUnavailableError, DeadlineExceededError)):
            await engine.tokenizer_bundle()


def test_more_bytes_than_are_taken_are_refused_as_they_come() -> None:
    """Nobody fills the router's memory: it ends at the chunk that goes over."""
    reader = BundleReader(limit=5)
    reader.add(a_chunk(b"123"))

    with pytest.raises(WorkerError, match="more than 5 bytes"):
        reader.add(a_chunk(b"456", "ab"))


def test_an_answer_without_its_digest_is_no_bundle() -> None:
    """The last chunk did not come: what is there may be a part."""
    reader = BundleReader()
    reader.add(a_chunk(b"123"))

    with pytest.raises(WorkerError, match="before its digest"):
        reader.bundle()


def test_pieces_are_joined_in_order() -> None:
    """Two chunks, one archive."""
    reader = BundleReader(limit=6)
    reader.add(a_chunk(b"123"))
    reader.add(a_chunk(b"456", "AB"))

    bundle = reader.bundle()
    assert (bundle.archive, bundle.sha256) == (b"123456", "AB")
    assert "123456" not in repr(bundle)
