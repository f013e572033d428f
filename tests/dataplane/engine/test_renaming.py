"""The one thing that changes in a body on its way to an HTTP worker."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.engine.renaming import with_model

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("body", "renamed"),
    [
        (b'{"model":"a"}', b'{"model":"b"}'),
        (b'{ "x": 1.50, "model": "a" }', b'{"x":1.50,"model":"b"}'),
        (b'{"big":12345678901234567890,"e":1e2}', b'{"big":12345678901234567890,"e":1e2,"model":"b"}'),
        (b'{"m":[ {"z":1,"a":"\\u00e9"} ],"model":null}', b'{"m":[ {"z":1,"a":"\\u00e9"} ],"model":"b"}'),
    ],
)  # fmt: skip
def test_values_keep_their_bytes(body: bytes, renamed: bytes) -> None:
    """Digits, escapes, blanks within values, and the order of fields stay."""
    assert with_model(body, "b") == renamed


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4), st.text(max_size=6))
def test_only_the_model_differs(fields: dict[str, object], name: str) -> None:
    """What is read of the new body is the old one with another model."""
    renamed = msgspec.json.decode(with_model(msgspec.json.encode(fields), name))

    assert renamed == {**fields, "model": name}
