"""The gRPC edge: bytes of calls to the ledger and back. All that grpclib needs hardening for is here."""
