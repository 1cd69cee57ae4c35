"""A time-stamp: one that OpenSSL made is read; one of anything else, or by anybody else, is refused."""

import base64
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedaudit.audit.attestation.seal import read_timestamp
from fedaudit.fl.runtime.errors import UserError

# Made with `openssl ts -reply` (OpenSSL 3), by a certificate of an authority made for this test
SEALED = b"a sealed audit\n"
TOKEN = """
MIIFHjADAgEAMIIFFQYJKoZIhvcNAQcCoIIFBjCCBQICAQMxDzANBglghkgBZQMEAgEFADBoBgsqhkiG9w0BCRABBKBZBFcwVQIBAQYEKgMEAT
AxMA0GCWCGSAFlAwQCAQUABCBCyDFFenClFq8wtY3zeKjeN8k0j94fKjZzKnoCRgpxygIBAhgPMjAyNjExMjMwMTE3NDNaMAMCAQGgggM4MIIB
mDCCAT+gAwIBAgIUPIv8deMLGWeFuld8G5z598uG+qMwCgYIKoZIzj0EAwIwGTEXMBUGA1UEAwwOUm9vdCBvZiBhIHRlc3QwHhcNMjYxMTIzMD
ExNzQzWhcNNDYwMTIyMDExNzQzWjAZMRcwFQYDVQQDDA5UaW1lIG9mIGEgdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPtWmsAIG1ke
jkNk9FlYm6K0Z4uO6RbUxFFwHWvuQ6t7iNMqOwD1Dhe1ZEmNdBRMHo9aI7WS6o5XDn88KXg4yimjZTBjMBYGA1UdJQEB/wQMMAoGCCsGAQUFBw
MIMAkGA1UdEwQCMAAwHQYDVR0OBBYEFAfAuMYtHpRWXJ744baG3vChfuExMB8GA1UdIwQYMBaAFOAYzUMSt4t+NuNsPQDPQUxW1JStMAoGCCqG
SM49BAMCA0cAMEQCIClWxYsVmxtWWFInwiBTiGSSV8iErs8fLb4zEZKNM4PJAiBljF1RmbwpU9T4glCZsp4r2fHuiquCUtxiYxBOxebqITCCAZ
gwggE/oAMCAQICFDyL/HXjCxlnhbpXfBuc+ffLhvqjMAoGCCqGSM49BAMCMBkxFzAVBgNVBAMMDlJvb3Qgb2YgYSB0ZXN0MB4XDTI2MTEyMzAx
MTc0M1oXDTQ2MDEyMjAxMTc0M1owGTEXMBUGA1UEAwwOVGltZSBvZiBhIHRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAT7VprACBtZHo
5DZPRZWJuitGeLjukW1MRRcB1r7kOre4jTKjsA9Q4XtWRJjXQUTB6PWiO1kuqOVw5/PCl4OMopo2UwYzAWBgNVHSUBAf8EDDAKBggrBgEFBQcD
CDAJBgNVHRMEAjAAMB0GA1UdDgQWBBQHwLjGLR6UVlye+OG2ht7woX7hMTAfBgNVHSMEGDAWgBTgGM1DEreLfjbjbD0Az0FMVtSUrTAKBggqhk
jOPQQDAgNHADBEAiApVsWLFZsbVlhSJ8IgU4hkklfIhK7PHy2+MxGSjTODyQIgZYxdUZm8KVPU+IJQmbKeK9nx7oqrglLcYmMQTsXm6iExggFE
MIIBQAIBATAxMBkxFzAVBgNVBAMMDlJvb3Qgb2YgYSB0ZXN0AhQ8i/x14wsZZ4W6V3wbnPn3y4b6ozANBglghkgBZQMEAgEFAKCBpDAaBgkqhk
iG9w0BCQMxDQYLKoZIhvcNAQkQAQQwHAYJKoZIhvcNAQkFMQ8XDTI2MTEyMzAxMTc0M1owLwYJKoZIhvcNAQkEMSIEILQMJ4o78D5z/glFKb6c
xSMavi332FC565b5MOGZ8rq3MDcGCyqGSIb3DQEJEAIvMSgwJjAkMCIEID0p1CxSkb23EvyTwmQz2gDbsnpF1lk144WosNxhXjUzMAoGCCqGSM
49BAMCBEYwRAIgFmNDJkP32NxTyVkvSwz9AFaKGdVAxesbNQnKwdO50SICIFQedlKpLcrMd0z+N/O5sXHB9f4VhH1wjKrNff4zpEp4
"""
ISSUER = """-----BEGIN CERTIFICATE-----
MIIBZTCCAQygAwIBAgIUGUjq9+M6cKxi+1e9gjb9le/wAF4wCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwOUm9vdCBvZiBhIHRlc3QwHhcNMjYxMTIzMDExNzQzWhcNNDYw
MTIyMDExNzQzWjAZMRcwFQYDVQQDDA5Sb290IG9mIGEgdGVzdDBZMBMGByqGSM49
AgEGCCqGSM49AwEHA0IABG3HTIRhX/POgeHXtvfAG+wdWKmM/Kteicbbbs79YNQ8
vKjDlHwS/aDwpxMFdOptlAoiAELDsxL6ASqdPoyyMD2jMjAwMA8GA1UdEwEB/wQF
MAMBAf8wHQYDVR0OBBYEFOAYzUMSt4t+NuNsPQDPQUxW1JStMAoGCCqGSM49BAMC
A0cAMEQCIGztoWFWyh3/+4SKbzP9W9zI1OkTSU8ZZzw+br8u9eeAAiAwuoY51Ojb
2Q1G9WIt/huA1+WA7WdcZlxEi1oaiEYa9w==
-----END CERTIFICATE-----
"""


@pytest.fixture
def library() -> None:
    pytest.importorskip("rfc3161_client")


def check(folder: Path, token: bytes, sealed: bytes = SEALED, authority: str = ISSUER) -> datetime:
    (folder / "seal.json").write_bytes(sealed)
    (folder / "seal.tsr").write_bytes(token)
    (folder / "authority.pem").write_text(authority)
    return read_timestamp(folder / "seal.tsr", folder / "authority.pem")


@pytest.mark.usefixtures("library")
def test_a_token_of_openssl_says_when_by_its_root(tmp_path: Path) -> None:
    assert check(tmp_path, base64.b64decode(TOKEN)) == datetime(2026, 11, 23, 1, 17, 43, tzinfo=UTC)


@pytest.mark.usefixtures("library")
def test_a_token_about_something_else_or_by_somebody_else_is_refused(tmp_path: Path) -> None:
    token = base64.b64decode(TOKEN)
    for changes in (
        {"sealed": b"another audit\n"},
        {"authority": "no certificate"},
        {"token": token.replace(b"20261123011743Z", b"20201123011743Z")},
        {"token": b""},
        {"token": b"\x30\x84\xff\xff\xff\xff"},
    ):
        with pytest.raises(UserError, match="is no time-stamp of the seal by the authority"):
            check(tmp_path, **({"token": token} | changes))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="is no time-stamp of the seal"):
        read_timestamp(tmp_path / "none.tsr", tmp_path / "authority.pem")


def test_who_lacks_the_library_is_told_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    with pytest.raises(UserError, match="rfc3161-client, which is not installed"):
        check(tmp_path, base64.b64decode(TOKEN))
