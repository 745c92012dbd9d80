"""An environment of Python with packages in it: uv installs them where it is to be had, otherwise pip.

    python -m tools.environment FOLDER ARGUMENTS    what pip's install takes; makes the environment, of this Python, if there is none

uv keeps unpacked packages and links them: an environment whose packages it has takes 2 s of CPU, where pip takes 80. It is asked without
the network first, for ``constraints`` names versions, of which there are no newer ones to be found. It does not read pip's configuration:
what that says of the index and the network is passed on. make puts uv into ``.cache/uv``; nothing else needs it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

UV: Final = Path(__file__).parents[1] / ".cache" / "uv" / "bin" / "uv"
# https://docs.astral.sh/uv/reference/environment/
_NAMES: Final = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
# What uv has no variable for: then pip, which was told so, installs.
_ONLY_PIP: Final = {"client-cert", "no-index", "no-binary", "only-binary", "pre", "constraint", "build-constraint"}
# pip's sections, the strongest last.
_SECTIONS: Final = ("global", "install", ":env:")


def uv_variables(configuration: Iterable[str]) -> dict[str, str] | None:
    """Return the lines of ``pip config list`` as uv's variables; None if they say what uv cannot be told."""
    found: dict[str, tuple[int, str]] = {}
    for line in configuration:
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in _SECTIONS and name in _NAMES | dict.fromkeys(_ONLY_PIP):
            found[name] = max(found.get(name, (-1, "")), (_SECTIONS.index(section), str(ast.literal_eval(value))))
    if found.keys() & _ONLY_PIP:
        return None
    told = {_NAMES[name]: _listed(name, value) for name, (_, value) in found.items()}
    return {name: value for name, value in told.items() if value}


def _listed(name: str, value: str) -> str:
    """Return a value as uv writes it: links with commas between them, without the folders that are not there."""
    if name != "find-links":
        return " ".join(value.split())
    return ",".join(link for link in value.split() if "://" in link or Path(link).is_dir())


def _install_by_uv(python: Path, arguments: list[str]) -> bool:
    """Install; return whether it is done."""
    if not UV.is_file():
        return False
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=False, capture_output=True, text=True)
    variables = uv_variables(listed.stdout.splitlines())
    if variables is None:
        return False
    command = [UV, "pip", "install", "--quiet", "--python", python, *arguments]
    environment = {**variables, **os.environ}  # uv's own variables, if there are any, are meant for uv
    known = subprocess.run([*command, "--offline"], check=False, env=environment, capture_output=True)
    return known.returncode == 0 or subprocess.run(command, check=False, env=environment).returncode == 0


def _install_by_pip(python: Path, arguments: list[str]) -> None:
    subprocess.run([python, "-m", "ensurepip"], check=True, stdout=subprocess.DEVNULL)
    # Python compiles what is imported when it is; pip would compile everything, for 24 s of CPU an environment.
    flags = ("--quiet", "--disable-pip-version-check", "--no-compile")
    subprocess.run([python, "-m", "pip", "install", *flags, *arguments], check=True)


def main(folder: str, *arguments: str) -> None:
    """Make the environment if it is not there, and install."""
    python = Path(folder).absolute() / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    if not _install_by_uv(python, list(arguments)):
        _install_by_pip(python, list(arguments))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except subprocess.CalledProcessError as e:
        sys.exit(e.returncode)
