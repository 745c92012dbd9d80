"""PyIceberg's configuration: its file and environment variables, and one catalog's part of them.

Reading it here imports no catalog: PyIceberg reads its configuration when its catalogs are imported, and an unreadable file would fail
there, without an error of ours.

Not here: which class a catalog is (``catalog.load``).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.utils.config import PYICEBERG_HOME, PYICEBERG_YML, Config

from icelock.errors import PolicyError


def read_configuration() -> Config:
    """Return PyIceberg's configuration.

    Raises:
        PolicyError: its file cannot be read; names it, and the place in it.
    """
    try:
        return Config()
    except Exception as e:  # noqa: BLE001 - whatever a parser says
        places = [os.environ.get(PYICEBERG_HOME), str(Path.home()), "."]
        found = next((place for place in (Path(folder) / PYICEBERG_YML for folder in places if folder) if place.is_file()), None)
        where = f"the file {found}" if found is not None else "an environment variable PYICEBERG_..."
        # The cause may have passwords in it.
        raise PolicyError(f"PyIceberg's configuration cannot be read, correct {where}: {_problem(e)}") from None


def _problem(error: Exception) -> str:
    """Return what is wrong, without the lines of YAML that the parser shows: they may have passwords in them."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())[:300] if isinstance(error, (OSError, ValueError)) else type(error).__name__
    return f"line {mark.line + 1}, column {mark.column + 1}: {' '.join(str(getattr(error, 'problem', '')).split())}"


def configured(config: Config, name: str) -> Mapping[str, Any]:
    """Return a catalog's properties in the configuration; empty if it has none.

    Raises:
        PolicyError: they are not a block of properties.
    """
    try:
        return config.get_catalog_config(name) or {}
    except ValueError as e:
        raise PolicyError(
            f"catalog {name}: PyIceberg's configuration has no block of properties at catalog.{name.lower()}, such as `type: sql`: {e}"
        ) from None  # likewise


def default_catalog(config: Config) -> str:
    """Return the name of the default catalog.

    Raises:
        PolicyError: ``default-catalog`` is not a name.
    """
    try:
        return config.get_default_catalog_name()
    except ValueError as e:
        raise PolicyError(f"default-catalog of PyIceberg's configuration must be the name of a catalog: {e}") from None  # likewise


def known_catalogs(config: Config) -> list[str]:
    """Return the names of the catalogs in the configuration."""
    known = config.config.get("catalog")
    return sorted(map(str, known)) if isinstance(known, dict) else []


def not_configured(config: Config, name: str) -> str:
    """Return the message for a catalog that neither the configuration nor the caller describes."""
    have = known_catalogs(config)
    near = difflib.get_close_matches(name.lower(), have, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return (
        f"catalog {name} is not in PyIceberg's configuration; {hint}it has: {', '.join(have) or 'none'}. Put its type and uri into "
        f"{PYICEBERG_YML} of your home folder, or set PYICEBERG_CATALOG__{name.upper()}__TYPE and __URI, or give them to load_catalog"
    )
