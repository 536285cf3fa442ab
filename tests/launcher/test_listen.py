"""What a server checks before anything that takes time."""

from __future__ import annotations

from pathlib import Path

import pytest

from framework.launcher.listen import check_tls, listen, shown_address
from hookspecs.config import ServingConfig
from hookspecs.errors import ConfigError


def test_a_port_that_is_in_use_is_named() -> None:
    with listen(ServingConfig(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}.*serving.port"):
            listen(ServingConfig(port=port))


def test_a_host_that_is_no_address_is_named() -> None:
    with pytest.raises(ConfigError, match=r"serving.host is 'no such host'"):
        listen(ServingConfig(host="no such host", port=0))


def test_the_address_shows_port_scheme_and_family() -> None:
    with listen(ServingConfig(port=0)) as sock:
        port = sock.getsockname()[1]
        assert shown_address(sock, ServingConfig()) == f"http://127.0.0.1:{port}"
        secure = ServingConfig(tls_certificate="c.pem")
        assert shown_address(sock, secure) == f"https://127.0.0.1:{port}"


def test_a_tls_key_without_a_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match="tls_certificate"):
        check_tls(ServingConfig(tls_key="key.pem"))


def test_unusable_tls_files_are_named(tmp_path: Path) -> None:
    wrong = tmp_path / "certificate.pem"
    wrong.write_text("nothing")
    for path in (wrong, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match=path.name):
            check_tls(ServingConfig(tls_certificate=str(path)))
