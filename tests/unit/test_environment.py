"""What pip is told of the index and the network, in uv's variables (https://docs.astral.sh/uv/reference/environment/)."""

from __future__ import annotations

from tools.environment import uv_variables


def test_uv_is_told_what_pip_is():
    assert uv_variables(
        [
            "global.index-url='https://one.test/simple'",
            "install.index-url='https://two.test/simple'",
            ":env:.cert='/etc/ssl/ca.crt'",
            "global.cert='/weaker.crt'",
            "global.extra-index-url='\\nhttps://three.test/simple\\nhttps://four.test/simple'",
            "global.default-timeout='180'",
            ":env:.disable-pip-version-check='1'",
            "freeze.index-url='https://another.command.test'",
        ]
    ) == {
        "UV_DEFAULT_INDEX": "https://two.test/simple",
        "SSL_CERT_FILE": "/etc/ssl/ca.crt",
        "UV_INDEX": "https://three.test/simple https://four.test/simple",
        "UV_HTTP_TIMEOUT": "180",
    }


def test_folders_that_are_not_there_are_no_links(tmp_path):
    links = f"{tmp_path} {tmp_path}/missing https://one.test/wheels"
    assert uv_variables([f"global.find-links={links!r}"]) == {"UV_FIND_LINKS": f"{tmp_path},https://one.test/wheels"}


def test_nothing_said_is_nothing_told():
    assert uv_variables([]) == {}


def test_what_uv_cannot_be_told_is_left_to_pip():
    assert uv_variables([":env:.cert='/etc/ssl/ca.crt'", "global.client-cert='/me.pem'"]) is None
    assert uv_variables([":env:.no-index='1'"]) is None
