"""Signatures of model files: Ed25519, in a file of its own beside the model.

What is signed is the SHA-512 of the file's bytes and the digest of its content. The first is checked before anything of
the file is read as a model; the second is what loading computes from what it has read, so a file that is exchanged
between the two is found out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whatelse.errors import ModelFileError
from whatelse.io.files import write_whole
from whatelse.model_file.file import GIVE, header_length, load

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SUFFIX = ".sig"
FORMAT = "whatelse-signature-1"
LONGEST = 10_000  # bytes of a key or signature file


class SignatureError(ModelFileError):
    """A file without a signature that holds, by a key that is trusted."""


def signature_path(model: Path) -> Path:
    """Where the signature of a model is looked for."""
    return model.with_name(model.name + SUFFIX)


def new_key(path: Path) -> Path:
    """Make a key pair: the private key at `path`, for its owner only, the public one beside it with .pub."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key, public = Ed25519PrivateKey.generate(), path.with_name(path.name + ".pub")
    secret = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    if there := [place for place in (path, public) if place.exists()]:
        raise ModelFileError(f"{there[0]}: is there already; a key is not overwritten, give another name")
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secret)
        with public.open("xb") as file:
            file.write(key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo))
    except OSError as error:
        raise ModelFileError(f"{error.filename}: cannot be written ({error.strerror})") from None
    return public


def sign_model(model: Path, private: Path) -> Path:
    """Sign a model that loads; returns the signature's file, which replaces an older one."""
    path = signature_path(model)
    write_signed(path, {"format": FORMAT, "sha512": _hash(model), "digest": load(model).digest}, private)
    return path


def verify_model(model: Path, trusted: Sequence[Path]) -> str:
    """The digest that loading must find; SignatureError unless one of the trusted public keys has signed the file."""
    path = signature_path(model)
    if not path.is_file():
        raise SignatureError(f"{model}: is not signed, and only signed models may be used; see 'whatelse sign'")
    said = read_signed(path, ("format", "sha512", "digest"), FORMAT, trusted)
    if _hash(model) != said["sha512"]:
        raise SignatureError(f"{model}: is not the file that was signed; sign it again if it may be used")
    return said["digest"]


def write_signed(path: Path, said: dict[str, str], private: Path) -> None:
    """Write `said` to `path` as JSON with the fingerprint of a private key, and the key's signature of all values."""
    key = private_key(private)
    said = {**said, "key": _fingerprint(key.public_key())}
    signature = base64.b64encode(key.sign("\0".join(said.values()).encode())).decode()
    write_whole(path, (json.dumps({**said, "signature": signature}, indent=1) + "\n").encode())


def read_signed(path: Path, fields: Sequence[str], format: str, trusted: Sequence[Path]) -> dict[str, str]:
    """What `write_signed` wrote, `fields` in the order in which they were signed.

    SignatureError unless one of the trusted public keys has signed it.
    """
    from cryptography.exceptions import InvalidSignature

    keys = {_fingerprint(key): key for key in map(public_key, trusted)}
    try:
        said: Any = json.loads(_small(path))
        strings = set(said) == {*fields, "key", "signature"} and all(isinstance(v, str) for v in said.values())
        if not strings or said["format"] != format:
            raise ValueError
        if said["key"] not in keys:
            raise SignatureError(f"{path}: is signed by a key that is not trusted here ({said['key'][:16]}…)")
        message = "\0".join(said[name] for name in (*fields, "key")).encode()
        keys[said["key"]].verify(base64.b64decode(said["signature"], validate=True), message)
    except (ValueError, TypeError, RecursionError, InvalidSignature):
        raise SignatureError(f"{path}: the signature is not valid, or of another version; sign again") from None
    found: dict[str, str] = said
    return found


def _fingerprint(key: Ed25519PublicKey) -> str:
    """SHA-256 of a public key, in hexadecimal: what a signature names its key by."""
    from cryptography.hazmat.primitives import serialization as form

    return hashlib.sha256(key.public_bytes(form.Encoding.Raw, form.PublicFormat.Raw)).hexdigest()


def _hash(path: Path) -> str:
    """SHA-512 of a file that may be a model by its first bytes; another one, of any size, is not read."""
    try:
        if not path.is_file():
            raise ModelFileError(f"{path}: there is no such file; {GIVE}")
        with path.open("rb") as file:
            header_length(path, file.read(9), os.fstat(file.fileno()).st_size)
            file.seek(0)
            return hashlib.file_digest(file, "sha512").hexdigest()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from None


def _small(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LONGEST)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from None


def public_key(path: Path) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_small(path))
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ModelFileError(f"{path}: is not a public Ed25519 key in PEM; 'whatelse sign --new-key' makes one")
    return key


def private_key(path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_small(path), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ModelFileError(f"{path}: is not a private Ed25519 key in PEM; 'whatelse sign --new-key' makes one")
    return key
