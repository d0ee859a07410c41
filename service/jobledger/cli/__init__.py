"""What people type: each command in a module of its own, put together in ``program``.

Modules of the server and of slow libraries are imported when a command needs them: the base installation
has no server, and ``--help`` should be there at once.
"""
