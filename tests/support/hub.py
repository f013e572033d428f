"""A hub on loopback that speaks as much of Hugging Face's protocol as a download needs."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """One repository ``org/model`` with one revision, and who asked for what."""

    def __init__(self, files: Mapping[str, bytes], *, token: str | None = None) -> None:
        """Serve *files*, to who shows *token* if there is one."""
        self.files = dict(files)
        self.token = token
        self.asked: list[str] = []
        self.url = ""

    def answer(self, path: str, authorization: str | None) -> tuple[int, dict[str, str], bytes]:
        """Return status, header fields and body."""
        self.asked.append(path)
        if self.token is not None and authorization != f"Bearer {self.token}":
            return 401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "restricted"}, b"{}"
        if not path.removeprefix("/api/models").startswith("/org/model/"):
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        if path.startswith("/api/models/"):
            return self._listing(path)
        return self._file(path)

    def _listing(self, path: str) -> tuple[int, dict[str, str], bytes]:
        revision = unquote(path.partition("?")[0]).rpartition("/")[2]
        if revision not in ("main", COMMIT):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        if "/tree/" in path:
            entries: Any = [
                {
                    "type": "file",
                    "path": name,
                    "size": len(content),
                    "oid": hashlib.sha1(content).hexdigest(),  # noqa: S324  # git's own
                }
                for name, content in self.files.items()
            ]
        else:
            siblings = [{"rfilename": name} for name in self.files]
            entries = {"id": "org/model", "sha": COMMIT, "siblings": siblings, "private": False}
        return 200, {"Content-Type": "application/json"}, json.dumps(entries).encode()

    def _file(self, path: str) -> tuple[int, dict[str, str], bytes]:
        content = self.files[path.partition(f"/resolve/{COMMIT}/")[2]]
        etag = hashlib.sha1(content).hexdigest()  # noqa: S324  # git's own
        return 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, content


@contextmanager
def running_hub(files: Mapping[str, bytes], *, token: str | None = None) -> Iterator[Hub]:
    """Serve *files* on a free port until the block ends."""
    hub = Hub(files, token=token)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, fields, body = hub.answer(self.path, self.headers["authorization"])
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | fields).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815  # http.server's own names, here and below

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
