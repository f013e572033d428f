"""Vocabularies: token ids to text, exactly as the model's own tokenizer decodes them."""

from sglr_dataplane.vocab.decoder import IncrementalDecoder, Piece
from sglr_dataplane.vocab.document import TokenizerDocument, TokenizerLoadError
from sglr_dataplane.vocab.vocabulary import Vocabulary

__all__ = [
    "IncrementalDecoder",
    "Piece",
    "TokenizerDocument",
    "TokenizerLoadError",
    "Vocabulary",
]
