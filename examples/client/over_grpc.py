"""The same client over gRPC: a server of inference.v1, such as `sglr serve --grpc-port 50051`."""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import sys

from sglr_client.grpc import grpc_client


def main(target: str, model: str) -> None:
    """Print an answer as it comes."""
    with grpc_client(target, timeout=120) as client:
        client.wait_for_model(model, timeout=30)
        with client.chat_stream(model, [{"role": "user", "content": "Hello"}]) as stream:
            for chunk in stream:
                print(chunk.text, end="", flush=True)
        print()


if __name__ == "__main__":
    main(*sys.argv[1:3])
