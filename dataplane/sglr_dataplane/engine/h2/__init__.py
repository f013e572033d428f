"""The client side of HTTP/2, as far as gRPC needs it: a pure frame machine and its asyncio shell.

=============  =======================================================================
``codes``      the numbers of RFC 9113
``errors``     what can go wrong, one class per consequence
``frames``     values → bytes of one frame
``settings``   a SETTINGS payload → what the peer allows
``headers``    header blocks ↔ fields, and the rules a response's fields must keep
``stream``     one request and its answer
``machine``    bytes in → streams with news out: THE STATE OF ONE CONNECTION
``sending``    what may be sent now: windows, frame sizes, turns
``messages``   DATA payloads → gRPC messages
``status``     response fields → gRPC status
``link``       the asyncio shell of one machine: socket, keepalive
``call``       one RPC on whatever connection serves it
=============  =======================================================================

Everything but ``link`` and ``call`` reaches no asyncio and no socket.
"""
