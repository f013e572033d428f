"""From backends, endpoints and what backends name to what routers are told, with versions; pure."""

from sglr_operator.compose.ledger import Composed, Ledger, Removed, conflicts, lost_most
from sglr_operator.compose.references import (
    LABEL,
    Material,
    Permits,
    resolve,
)

__all__ = [
    "LABEL",
    "Composed",
    "Ledger",
    "Material",
    "Permits",
    "Removed",
    "conflicts",
    "lost_most",
    "resolve",
]
