"""What SGLang makes of requests; run in the environment of ``requirements.txt``.

Usage: ``python oracle.py DIRECTORY [TEMPLATE] < requests.json``, as SGLang's ``--chat-template``: a list of requests, each with ``sglang`` (a
body) and ``prepared`` (messages, tools and template arguments for ``apply_chat_template``, or
null). Prints a list of answers: ``{"sglang": ids or error, "transformers": ids or error or null}``.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import sys
from typing import Any

Json = dict[str, Any]


def sglang(module: str, *names: str) -> list[Any]:
    """Return what SGLang's *module* calls *names*; there only in the oracle's own environment."""
    found = importlib.import_module(f"llm_router_utils.sglang.srt.{module}")
    return [getattr(found, name) for name in names]


def main() -> None:
    """Answer what standard input asks."""
    logging.disable(logging.CRITICAL)
    directory, template, *_ = (*sys.argv[1:], None)
    with contextlib.redirect_stdout(io.StringIO()):
        server = _server(directory, template)
        # As SGLang loads it: transformers' own class, with what SGLang repairs in it.
        tokenizer = server.tokenizer_manager.tokenizer
        answers = [
            {
                "sglang": _of_sglang(server, asked["sglang"]),
                "transformers": _of_transformers(tokenizer, asked["prepared"]),
            }
            for asked in json.load(sys.stdin)
        ]
    json.dump(answers, sys.stdout)


def _server(directory: Any, template: Any) -> Any:
    """Return SGLang's chat front end on the model in *directory*, as the server builds it."""
    (serving_chat,) = sglang("entrypoints.openai.serving_chat", "OpenAIServingChat")
    (manager_of,) = sglang("managers.tokenizer_manager", "TokenizerManager")
    (template_manager,) = sglang("parser.template_manager", "TemplateManager")
    server_args, port_args = sglang("server_args", "ServerArgs", "PortArgs")
    manager = manager_of(server_args(model_path=directory, device="cpu"), port_args())
    templates = template_manager()
    templates.load_chat_template(manager, template, "a model without a name")
    return serving_chat(manager, templates)


def _of_sglang(server: Any, body: Json) -> Any:
    request_of, tool = sglang("entrypoints.openai.protocol", "ChatCompletionRequest", "Tool")
    try:
        request = request_of.model_validate(body)
        _show_tools_as_0_5_23(tool, body)
        made = server._process_messages(request, is_multimodal=False)  # noqa: SLF001  # no other way
        return list(made.prompt_ids)
    except Exception as error:  # noqa: BLE001  # whatever it raises is its answer
        return f"{type(error).__name__}: {error}"


def _show_tools_as_0_5_23(kind: Any, body: Json) -> None:
    """Have tools written as SGLang 0.5.23 writes them; llm-router-utils 0.8.1 is cut from 0.5.22.

    0.5.23, protocol.py, Function._serialize: keys in the client's order, what it left out last, and
    no ``strict`` that was not set.
    """
    sent = {tool["function"]["name"]: tool["function"] for tool in body.get("tools", ())}

    def model_dump(tool: Any, **_: Any) -> Json:
        function = tool.function
        given = sent[function.name]
        values = {name: getattr(function, name) for name in ("description", "name", "parameters")}
        values |= {name: given[name] for name in ("strict", "defer_loading") if name in given}
        order = [name for name in given if name in values]
        order += [name for name in values if name not in order]
        return {
            "type": tool.type,
            "function": {name: values[name] for name in order},
            "defer_loading": tool.defer_loading,
        }

    kind.model_dump = model_dump


def _of_transformers(tokenizer: Any, prepared: Json | None) -> Any:
    if prepared is None:
        return None
    try:
        text = tokenizer.apply_chat_template(
            prepared["messages"],
            tools=prepared["tools"],
            add_generation_prompt=prepared["start"],
            tokenize=False,
            **prepared["kwargs"],
        )
        return tokenizer.encode(text, add_special_tokens=False)
    except Exception as error:  # noqa: BLE001  # whatever it raises is its answer
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
