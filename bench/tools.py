# ruff: noqa: S603 -- builds and starts fixed programs
"""What the load runs need, made once in a folder: C programs, the peer, a model, prompts, replies."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from google.protobuf.struct_pb2 import Struct
from ports import reserved_port  # noqa: F401  # for all that import this

from sglr_dataplane.prompt.encoder import ReferenceEncoder
from sglr_dataplane.vocab import Vocabulary
from sglr_proto.sglang import scheduler_pb2 as pb

ROOT = Path(__file__).resolve().parent.parent
PEER = "smg==1.13.0"
_TEMPLATE_TOKENS = 29
"""What Qwen2.5's template puts around one message."""
_VOCABULARY = 152064
ANSWER = 259
"""Tokens of the seed workload's answers: their text must tokenize to as many again."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Look up the {name} of a place.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
        },
    }
    for name in ("weather", "time", "population")
]


@dataclass(frozen=True)
class Bodies:
    """Request bodies of one kind."""

    prompt: int
    """Tokens, the template's included."""
    answer: int
    count: int = 100
    stream: bool = True
    tools: bool = False


BODIES = {
    "seed": Bodies(505, ANSWER),
    "flood": Bodies(60, 1000, 20),
    "flood-2000": Bodies(60, 2000, 20),
    "paced": Bodies(500, 200),
    "paced-tools": Bodies(500, 200, tools=True),
    "flood-tools": Bodies(60, 1000, 20, tools=True),
    "request-500": Bodies(500, 1, 1500),
    "request-500-plain": Bodies(500, 1, 1500, stream=False),
    "request-4k": Bodies(4000, 1, 300),
    "burst": Bodies(500, 8, 500),
    "unread": Bodies(60, 100_000, 20),
}


class Toolbox:
    """The folder with everything."""

    def __init__(self, folder: Path) -> None:
        """Use *folder*, which may be empty."""
        self.folder = folder
        self.model = folder / "model"
        self.peer = folder / "peer" / "bin" / "smg"

    @property
    def worker(self) -> Path:
        """The simulated worker."""
        return self.folder / "worker"

    @property
    def load(self) -> Path:
        """The load generator."""
        return self.folder / "load"

    def bodies(self, name: str) -> Path:
        """Return the file with the bodies *name*."""
        return self.folder / f"bodies-{name}.jsonl"

    def make(self, *, with_peer: bool) -> None:
        """Make what is missing; the C programs always, for they may have changed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        native = ROOT / "bench" / "native"
        compiler = ["gcc", "-O2", "-Wall", "-Wextra", "-o"]
        subprocess.run([*compiler, self.worker, native / "worker.c", "-lnghttp2"], check=True)
        subprocess.run([*compiler, self.load, native / "load.c", "-lm"], check=True)
        self._make_model()
        encoder = ReferenceEncoder((self.model / "tokenizer.json").read_bytes())
        self._make_ids(encoder)
        self._make_replies()
        for name, wanted in BODIES.items():
            self._make_bodies(name, wanted, encoder)
        if with_peer and not self.peer.exists():
            subprocess.run([sys.executable, "-m", "venv", self.folder / "peer"], check=True)
            pip = [self.folder / "peer" / "bin" / "python", "-m", "pip", "install", "-q"]
            subprocess.run([*pip, PEER], check=True)

    def _make_model(self) -> None:
        """Copy Qwen2.5's tokenizer; the peer looks on a hub for what has no config.json."""
        if (self.model / "config.json").exists():
            return
        fetch = [sys.executable, ROOT / "scripts" / "fetch_tokenizers.py", "--only", "qwen2.5"]
        subprocess.run(fetch, check=True)
        shutil.copytree(ROOT / ".cache" / "tokenizers" / "qwen2.5", self.model, dirs_exist_ok=True)
        config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
        config |= {"vocab_size": _VOCABULARY, "max_position_embeddings": 131072}
        (self.model / "config.json").write_text(json.dumps(config))

    def _make_ids(self, encoder: ReferenceEncoder) -> None:
        """Write what the worker says: prose, code, and letters of several bytes."""
        text = (ROOT / "README.md").read_text() + (ROOT / "bench" / "tools.py").read_text()
        text += " 这是一个测试 模型输出中文。 Ünïcödé café naïve 🎉👍 — «quoted» …\n"
        ids = encoder.encode((ROOT / "LICENSE").read_text().strip() + text)
        seed = Vocabulary.from_dir(self.model).decode(ids[:ANSWER])
        if encoder.encode(seed) != ids[:ANSWER]:
            raise SystemExit("The seed workload's answer is not what its text tokenizes to.")
        (self.folder / "ids.txt").write_text("\n".join(map(str, ids)))

    def _make_replies(self) -> None:
        """Write the messages that a worker answers everything but Generate with."""
        folder = self.folder / "replies"
        folder.mkdir(exist_ok=True)
        served, scheduler = Struct(), Struct()
        served.update(
            {
                "served_model_name": "qwen",
                "tp_size": 1,
                "dp_size": 1,
                "max_running_requests": 2048,
                "context_length": 131072,
            }
        )
        scheduler.update({"max_total_num_tokens": 1_000_000})
        model = str(self.model)
        messages = {
            "HealthCheck": pb.HealthCheckResponse(healthy=True, message="ok"),
            "GetModelInfo": pb.GetModelInfoResponse(
                model_path=model,
                tokenizer_path=model,
                is_generation=True,
                served_model_name="qwen",
                max_context_length=131072,
                vocab_size=_VOCABULARY,
                model_type="qwen2",
                eos_token_ids=[151645],
                pad_token_id=151643,
                bos_token_id=151643,
                max_req_input_len=131000,
                architectures=["Qwen2ForCausalLM"],
                weight_version="default",
            ),
            "GetServerInfo": pb.GetServerInfoResponse(
                server_args=served,
                scheduler_info=scheduler,
                sglang_version="0.5.4",
                server_type="grpc",
                max_total_num_tokens=1_000_000,
            ),
            "GetLoads": pb.GetLoadsResponse(
                dp_rank_count=1,
                loads=[pb.SchedulerLoad(max_total_num_tokens=1_000_000, max_running_requests=2048)],
            ),
            "Abort": pb.AbortResponse(success=True, message="ok"),
        }
        for name, message in messages.items():
            (folder / name).write_bytes(message.SerializeToString())
        # grpc.health.v1: status (1) is SERVING (1).
        (folder / "Check").write_bytes(b"\x08\x01")

    def _make_bodies(self, name: str, wanted: Bodies, encoder: ReferenceEncoder) -> None:
        if self.bodies(name).exists():
            return
        draw = random.Random(name)  # noqa: S311  # the same prompts on every machine
        lines: list[str] = []
        for _ in range(wanted.count):
            content = _prompt(draw, wanted.prompt - _TEMPLATE_TOKENS, encoder)
            body = {
                "model": "qwen",
                "messages": [{"role": "user", "content": content}],
                "max_tokens": wanted.answer,
                "stream": wanted.stream,
            }
            if wanted.stream:
                body["stream_options"] = {"include_usage": True}
            if wanted.tools:
                body["tools"] = TOOLS
            lines.append(json.dumps(body, separators=(",", ":")))
        self.bodies(name).write_text("\n".join(lines) + "\n")


def _prompt(draw: random.Random, tokens: int, encoder: ReferenceEncoder) -> str:
    """Return words of exactly *tokens* tokens."""
    words = (ROOT / "LICENSE").read_text().split()
    chosen = draw.choices(words, k=tokens)
    chosen = chosen[: len(chosen) * tokens // len(encoder.encode(" ".join(chosen)))]
    while (found := len(encoder.encode(" ".join(chosen)))) > tokens:
        chosen.pop()
    return " ".join([*chosen, *["the"] * (tokens - found)])
