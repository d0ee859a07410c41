"""What keeps the service from starting is told in one line, with what to do."""

from __future__ import annotations

import socket

import pytest

from jobledger import errors
from tests.support import services


@pytest.mark.parametrize("port", ["grpc_port", "http_port"])
async def test_a_port_that_is_taken_is_named_with_the_variable_that_moves_it(
    database: str, port: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]

        with pytest.raises(errors.SetupError) as refused:
            async with services.running(database, **{port: taken}):
                pass

    assert f"127.0.0.1:{taken}: Address already in use; set JOBLEDGER_{port.upper()}" in str(refused.value)
