"""The client side of HTTP/2, as far as gRPC needs it: a pure frame machine and its asyncio shell.

=============  =================================================================
``codes``      the numbers of RFC 9113
``errors``     what can go wrong with a stream, one class per consequence
``frames``     values → bytes of one frame
``unpack``     payload of one frame → its parts
``settings``   a SETTINGS payload → what the peer allows
``headers``    header blocks ↔ fields, and the rules that they must keep
``stream``     one request and its answer
``events``     what else a connection tells
``sending``    what may be sent now: windows, frame sizes, turns
``state``      what is known of one connection, and how its streams end
``inbound``    bytes in → streams with news out: one receiver per frame type
``machine``    what the user of a connection does, and with it the whole of it
``splitter``   DATA payloads → gRPC messages
``status``     response fields → gRPC status
``link``       the asyncio shell of one machine: socket, keepalive, whom to tell
``call``       one RPC on whatever connection serves it
=============  =================================================================

Everything but ``link`` and ``call`` reaches no asyncio and no socket.
"""
