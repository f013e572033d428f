"""A client of OpenAI-style inference servers: this router, SGLang, vLLM.

`Client` and `AsyncClient` are the doors; `sglr_client.sse` parses event streams by itself,
`sglr_client.retry` and `sglr_client.breaker` decide by themselves, `sglr_client.testing` is a server
for your tests, and `sglr_client.prometheus` a sink for the metrics.
"""

from sglr_client.async_client import AsyncClient
from sglr_client.async_stream import AsyncStream
from sglr_client.breaker import Breaker, BreakerPolicy, BreakerState
from sglr_client.calls import ChatParameters, ChatRequest
from sglr_client.client import Client
from sglr_client.errors import (
    AuthenticationError,
    BreakerOpenError,
    ClientClosedError,
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    DeadlineError,
    InvalidAnswerError,
    InvalidChunkError,
    InvalidRequestError,
    LineTooLongError,
    ModelNotReadyError,
    NetworkError,
    NotFoundError,
    OverloadedError,
    RateLimitedError,
    RefusedError,
    ServerError,
    StreamError,
    TlsError,
    TruncatedStreamError,
    UnhealthyError,
)
from sglr_client.health import Health
from sglr_client.limits import Limits, Timeouts
from sglr_client.metrics import CallReport, DictSink, MetricsSink
from sglr_client.results import (
    ChatChunk,
    ChatCompletion,
    Completion,
    Embeddings,
    Message,
    Models,
    Usage,
)
from sglr_client.retry import RetryPolicy
from sglr_client.stream import Stream

__all__ = [
    "AsyncClient",
    "AsyncStream",
    "AuthenticationError",
    "Breaker",
    "BreakerOpenError",
    "BreakerPolicy",
    "BreakerState",
    "CallReport",
    "ChatChunk",
    "ChatCompletion",
    "ChatParameters",
    "ChatRequest",
    "Client",
    "ClientClosedError",
    "ClientError",
    "Completion",
    "ConnectFailedError",
    "ConnectionLostError",
    "DeadlineError",
    "DictSink",
    "Embeddings",
    "Health",
    "InvalidAnswerError",
    "InvalidChunkError",
    "InvalidRequestError",
    "Limits",
    "LineTooLongError",
    "Message",
    "MetricsSink",
    "ModelNotReadyError",
    "Models",
    "NetworkError",
    "NotFoundError",
    "OverloadedError",
    "RateLimitedError",
    "RefusedError",
    "RetryPolicy",
    "ServerError",
    "Stream",
    "StreamError",
    "Timeouts",
    "TlsError",
    "TruncatedStreamError",
    "UnhealthyError",
    "Usage",
]
