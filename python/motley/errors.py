"""What goes wrong, as exceptions."""

from __future__ import annotations


class MotleyError(Exception):
    """The base of all errors of this package."""


class StartError(MotleyError):
    """The server did not start. The message is the server's."""


class RequestError(MotleyError):
    """The server has refused a request, or failed at it.

    `message`, `param` and `code` are the server's. `index` is the number of the prompt that failed, if there were several.
    """

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None,
                 index: int | None = None, retry_after: float | None = None) -> None:
        where = "" if index is None else f"prompt {index}: "
        super().__init__(f"{where}{message} (status {status})")
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.index = index
        self.retry_after = retry_after

    def at(self, index: int) -> RequestError:
        """The same error of one of several prompts."""
        return RequestError(self.status, self.message, param=self.param, code=self.code, index=index,
                            retry_after=self.retry_after)
