"""docs/api.md says of every field what the code does with it."""

import re

import msgspec
import pytest

from sglr_dataplane.api.schema import adapted_fields, fields, native_fields
from sglr_dataplane.api.schema.anthropic import MessagesBody
from sglr_dataplane.api.schema.chat import ChatBody
from sglr_dataplane.api.schema.completions import CompletionBody
from sglr_dataplane.api.schema.native import NativeBody, NativeSampling
from sglr_dataplane.api.schema.responses import ResponsesBody
from support.scripts import script

docs = script("gen_api_docs")
SEEDS = {"seed", "sampling_seed"}
"""Read only to warn."""
RENAMED = {"max_tokens", "max_completion_tokens", "min_tokens", "include_stop_str_in_output"}
"""OpenAI's names, which sampling_params of SGLang's own API has others for."""


def test_the_page_is_what_the_tables_say() -> None:
    """No table was changed by hand, and none is stale."""
    page = docs.PAGE.read_text(encoding="utf-8")

    assert docs.written(page) == page


def test_every_table_is_on_the_page() -> None:
    """Each API's fields are documented, each once."""
    page = docs.PAGE.read_text(encoding="utf-8")
    named = re.findall(r"<!-- table: ([^>]+) -->", page)

    assert sorted(named) == sorted([*docs.TABLES, "template kwargs", "not served"])


@pytest.mark.parametrize(
    ("struct", "known"),
    [
        (ChatBody, fields.CHAT_FIELDS),
        (CompletionBody, fields.COMPLETION_FIELDS),
        (MessagesBody, adapted_fields.MESSAGES_FIELDS),
        (ResponsesBody, adapted_fields.RESPONSES_FIELDS),
        (NativeBody, native_fields.NATIVE_FIELDS),
        (NativeSampling, native_fields.NATIVE_SAMPLING_FIELDS),
    ],
)
def test_a_field_is_honoured_exactly_if_it_is_read(
    struct: type[msgspec.Struct], known: dict[str, fields.Field]
) -> None:
    """The tables that the page is made from, and what is decoded, name the same fields."""
    read = {field.name for field in msgspec.structs.fields(struct)} - SEEDS
    honoured = {name for name, field in known.items() if field.fate == "honoured"}

    assert read - (RENAMED if struct is NativeSampling else set()) == honoured


def test_a_mark_without_a_table_is_an_error() -> None:
    """A page cannot promise a table that nothing makes."""
    with pytest.raises(KeyError):
        docs.written("<!-- table: nothing -->\n<!-- end -->")
