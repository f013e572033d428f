"""The parser of server-sent events by itself: any bytes in, events out."""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

from sglr_client.sse import EventParser


def main() -> None:
    """Print the events of a stream that comes in awkward pieces."""
    parser = EventParser(cap=1024 * 1024)
    for part in (b": hello\r\n\r", b"\nda", b"ta: one\ndata: two\n", b"\nevent: note\rdata:x\r\r"):
        for event in parser.feed(part):
            print(event.event, event.data)


if __name__ == "__main__":
    main()
