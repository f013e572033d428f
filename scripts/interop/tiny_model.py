"""Writes a two-layer model with random weights and a real tokenizer: ``tiny_model.py TOKENIZER OUT``.

Runs in SGLang's own environment. Greedy output is varied, repeatable and means nothing.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def main(tokenizer: Path, out: Path) -> None:
    """Write the model to *out*; does nothing if one is there."""
    if (out / "config.json").exists():
        return
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    document = json.loads((tokenizer / "tokenizer.json").read_bytes())
    added = {token["content"]: token["id"] for token in document["added_tokens"]}
    size = 1 + max(*document["model"]["vocab"].values(), *added.values())
    settings = json.loads((tokenizer / "tokenizer_config.json").read_bytes())
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=-(-size // 128) * 128,
        hidden_size=128,
        head_dim=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32768,
        tie_word_embeddings=False,
        eos_token_id=added[settings["eos_token"]],
        dtype="bfloat16",
    )
    model = transformers.Qwen3ForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():  # else every state looks alike and greedy output repeats one token
        model.model.embed_tokens.weight.normal_(0, 0.3)
        model.lm_head.weight.normal_(0, 0.05)
    model.save_pretrained(out)
    for name in _FILES:
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, out / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
