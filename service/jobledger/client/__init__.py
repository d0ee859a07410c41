"""The client: publish events, follow the stream, ask for a job. Needs nothing of the server.

- ``publishing``    events in, receipts out, in order, over reconnects
- ``batches``       a batch as it is sent, and what became of its events
- ``subscription``  every event after a cursor, once, in order, over reconnects
- ``continuity``    the rule that both ends of a stream keep, as a value
- ``messages``      what a subscription yields
- ``rest``          one job, as the console sees it
- ``connection``    channels, and what their failures mean
"""
