"""A server for tests of programs that speak to inference servers: scripted answers and faults.

    with MockServer() as server:
        server.play(Fail(503, retry_after=0), Say("Hello"))
        client = Client(server.url)

With pytest: ``pytest_plugins = ["sglr_client.testing.plugin"]`` and the ``mock_server`` fixture.
"""

from sglr_client.testing.plays import Drop, Fail, Hang, Play, Raw, Say, Then
from sglr_client.testing.server import MockServer, Recorded

__all__ = ["Drop", "Fail", "Hang", "MockServer", "Play", "Raw", "Recorded", "Say", "Then"]
