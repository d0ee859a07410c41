"""One client's connection, on which even what the parser refuses is answered in the envelope.

aiohttp answers that as text, and with the client's bytes in it.
"""

from __future__ import annotations

from typing import Final

from aiohttp import StreamReader, http_exceptions, web

from jobledger import errors
from jobledger.web import envelope

LINE_LIMIT_BYTES: Final = 8190
"""The longest URL and the longest header; an id of 256 characters takes at most 3 KiB of it."""


class Connection(web.RequestHandler):
    """One client's connection."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # pyright: ignore[reportArgumentType] - handed through
        self._body: StreamReader | None = None
        self.broken = False
        """What came is not HTTP any more; nothing after it can be understood."""

    def watch(self, body: StreamReader) -> None:
        """Take care that whoever reads this body hears of its end, whatever comes."""
        self._body = body
        self._end_broken_body()

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        super().data_received(data)
        self._end_broken_body()

    def _end_broken_body(self) -> None:
        """End a body that cannot go on.

        aiohttp queues a parser error as the next message and leaves the body before it waiting for ever.
        No message but an error can follow a body that is not complete.
        """
        if self._body is not None and not self._body.is_eof() and self._messages:
            self.broken = True
            self._body.set_exception(
                errors.InvalidRequest("the body's chunks are not well-formed; send it again")
            )
            self._body.feed_eof()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what the parser refused; its message would show the client's bytes, secrets too."""
        del message
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was begun; only the end of the connection can tell")
        if isinstance(exc, http_exceptions.HttpProcessingError):
            response = envelope.failure(errors.InvalidRequest(_refusal(exc)))
        else:
            response = envelope.failure(
                exc if isinstance(exc, Exception) else RuntimeError(f"status {status}")
            )
        response.force_close()
        return response


def _refusal(error: http_exceptions.HttpProcessingError) -> str:
    match error:
        case http_exceptions.LineTooLong():
            return f"the URL or a header is longer than {LINE_LIMIT_BYTES} bytes; shorten it"
        case http_exceptions.InvalidURLError():
            return "the URL is malformed; percent-encode everything but ASCII in it"
        case http_exceptions.BadHttpMethod():
            return "the method is none of HTTP's; use GET, POST or DELETE"
        case _:
            return "the request is not well-formed HTTP"
