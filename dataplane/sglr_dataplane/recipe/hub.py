"""Tokenizers from the Hugging Face hub.

``huggingface_hub`` itself reads HF_HUB_OFFLINE, HF_ENDPOINT, HF_TOKEN and HF_HOME, when it is first
imported: here nothing of that is repeated.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

from sglr_dataplane.vocab import TokenizerLoadError

# What a router reads: vocabularies, settings and templates; no weights.
_FILES: Final = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("config.json", "generation_config.json", "tekken.json", "vocab.json", "merges.txt"),
    *("tiktoken.model", "chat_template.jinja", "chat_template.json"),
    "additional_chat_templates/*.jinja",
)
_LOOK_UP_SECONDS: Final = 10.0
"""For the answer to what a revision is; the files are then taken from the cache where they can."""


def downloaded(repo: str, revision: str) -> Path:
    """Return the folder with the tokenizer's files of *repo*; takes as long as the network does.

    What is in the hub's cache is not fetched again; without a network the cache answers alone.

    Raises:
        TokenizerLoadError: The library is not installed, or the hub does not have it, does not let
            us, or cannot be reached; the sentence says which.
    """
    try:
        # Optional: an air-gapped router has no use for it.
        hub = importlib.import_module("huggingface_hub")
        errors = importlib.import_module("huggingface_hub.errors")
        utilities = importlib.import_module("huggingface_hub.utils")
    except ImportError as error:
        raise TokenizerLoadError(
            "The tokenizer is on the Hugging Face hub, but huggingface_hub is not installed; "
            "install the 'hub' extra."
        ) from error
    utilities.disable_progress_bars()  # standard error holds log lines, one JSON object each
    try:
        folder: str = hub.snapshot_download(
            repo,
            revision=revision,
            allow_patterns=list(_FILES),
            etag_timeout=_LOOK_UP_SECONDS,
            library_name="sglr",
        )
    except errors.GatedRepoError as error:
        raise _missing(
            repo, revision, "it is gated; set HF_TOKEN to one that may read it"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise _missing(repo, revision, "there is none, or HF_TOKEN may not read it") from error
    except errors.RevisionNotFoundError as error:
        raise _missing(repo, revision, "it has no such revision") from error
    except errors.LocalEntryNotFoundError as error:
        raise _missing(repo, revision, _unreachable()) from error
    except (OSError, ValueError, errors.HfHubHTTPError) as error:
        raise _missing(repo, revision, f"{type(error).__name__}") from error
    return Path(folder)


def _unreachable() -> str:
    if importlib.import_module("huggingface_hub.constants").HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set, and the cache does not have it"
    return "the hub cannot be reached, and the cache does not have it"


def _missing(repo: str, revision: str, reason: str) -> TokenizerLoadError:
    return TokenizerLoadError(
        f"The tokenizer of {repo!r} at {revision!r} cannot be had from the Hugging Face hub: "
        f"{reason}."
    )
