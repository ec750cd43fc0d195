"""The key of service account tokens in the folder of certificates."""

from pathlib import Path

from pinnace.apiserver.auth.tokens import read_token_keys
from pinnace.pki.folder import PkiFolder


def test_signing_key_is_created_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    folder = PkiFolder(tmp_path)
    private, public = folder.signing_key_files()
    assert folder.provide_signing_key() == ["sa"]
    key = private.read_bytes()
    assert folder.provide_signing_key() == [] and private.read_bytes() == key
    assert private.stat().st_mode & 0o777 == 0o600
    public.unlink()
    assert folder.provide_signing_key() == ["sa"] and private.read_bytes() == key, "the public key is made again"
    assert len(read_token_keys(private, [public]).verifying) == 1


def test_rotation_publishes_the_new_key_before_it_signs(tmp_path: Path) -> None:
    folder = PkiFolder(tmp_path)
    folder.provide_signing_key()
    private, public = folder.signing_key_files()
    first = private.read_bytes()
    seen: list[tuple[bytes, int]] = []

    def wait() -> None:
        seen.append((private.read_bytes(), public.read_text().count("BEGIN")))

    folder.rotate_signing_key(wait)
    assert seen == [(first, 2)]
    second = private.read_bytes()
    assert second != first and len(read_token_keys(private, [public]).verifying) == 2
    folder.rotate_signing_key(wait)
    assert len(read_token_keys(private, [public]).verifying) == 2, "the first key is retired"
    assert private.read_bytes() not in (first, second)
