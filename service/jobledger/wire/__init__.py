"""Protobuf to model and back: the only translation.

The hot path uses google's upb on the descriptors that the generated code carries: half a microsecond a
message, strict on UTF-8 and framing, and unknown fields survive.

- ``signals``   a signal and its stored bytes
- ``delivery``  what subscribers get
- ``requests``  what callers send, and the receipts that they get
- ``messages``  the classes behind all three
"""
