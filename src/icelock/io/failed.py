"""Errors of a storage with what was tried and what to do; of the storage's own class (``PermissionError``, ``FileNotFoundError``)."""

from __future__ import annotations

import os


def failed(error: OSError, what: str, remedy: str) -> OSError:
    """Return an error for one of a storage: ``what`` could not be done, why not, and the remedy."""
    text = f"{what} ({os.strerror(error.errno) if error.errno else error}): {remedy}"
    return OSError(error.errno, text) if error.errno else OSError(text)
