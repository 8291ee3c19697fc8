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
from whatelse.model_file.file import GIVE, MAX_HEADER, load

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SUFFIX = ".sig"
FORMAT = "whatelse-signature-1"
LONGEST = 10_000  # bytes of a key or signature file
BLOCK = 1 << 20


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
    key = private_key(private)
    named = fingerprint(key.public_key())
    said = {"format": FORMAT, "sha512": _hash(model), "digest": load(model).digest, "key": named}
    signature = key.sign(_message(said))
    said["signature"] = base64.b64encode(signature).decode()
    path = signature_path(model)
    write_whole(path, (json.dumps(said, indent=1, sort_keys=True) + "\n").encode())
    return path


def verify_model(model: Path, trusted: Sequence[Path]) -> str:
    """The digest that loading must find; ModelFileError unless one of the trusted public keys has signed the file."""
    keys = {fingerprint(key): key for key in map(public_key, trusted)}
    said = _read_signature(model)
    key = keys.get(said["key"])
    if key is None:
        raise ModelFileError(f"{model}: is signed by a key that is not trusted here ({said['key'][:16]}…)")
    if not signed_by(key, said["signature"], _message(said)):
        raise ModelFileError(f"{signature_path(model)}: the signature is not valid; sign the model again")
    if _hash(model) != said["sha512"]:
        raise ModelFileError(f"{model}: is not the file that was signed; sign it again if it may be used")
    return said["digest"]


def signed_by(key: Ed25519PublicKey, signature: str, message: bytes) -> bool:
    """Whether `signature` (base64) is this key's signature of the message."""
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(base64.b64decode(signature, validate=True), message)
    except (InvalidSignature, ValueError):
        return False
    return True


def fingerprint(key: Ed25519PublicKey) -> str:
    """SHA-256 of a public key, in hexadecimal: what a signature names its key by."""
    from cryptography.hazmat.primitives import serialization as form

    return hashlib.sha256(key.public_bytes(form.Encoding.Raw, form.PublicFormat.Raw)).hexdigest()


def _message(said: dict[str, str]) -> bytes:
    return "\0".join([FORMAT, said["sha512"], said["digest"], said["key"]]).encode()


def _read_signature(model: Path) -> dict[str, str]:
    path = signature_path(model)
    if not path.is_file():
        raise ModelFileError(f"{model}: is not signed, and only signed models may be used; see 'whatelse sign'")
    try:
        said: Any = json.loads(_small(path))
    except (ValueError, RecursionError):
        said = None
    needed = {"format", "sha512", "digest", "key", "signature"}
    if not isinstance(said, dict) or set(said) != needed or not all(isinstance(v, str) for v in said.values()):
        raise ModelFileError(f"{path}: is not a signature; sign the model again")
    if said["format"] != FORMAT:
        raise ModelFileError(f"{path}: is a signature of another version; sign the model again")
    return said


def _hash(path: Path) -> str:
    hashed = hashlib.sha512()
    try:
        if not path.is_file():
            raise ModelFileError(f"{path}: there is no such file; {GIVE}")
        with path.open("rb") as file:
            size, start = os.fstat(file.fileno()).st_size, file.read(8)
            if len(start) < 8 or not 2 <= int.from_bytes(start, "little") <= min(MAX_HEADER, size - 8):
                raise ModelFileError(f"{path}: not a model file ({size:,} bytes, no safetensors header); {GIVE}")
            file.seek(0)
            while block := file.read(BLOCK):
                hashed.update(block)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from None
    return hashed.hexdigest()


def _small(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST + 1)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from None
    if len(data) > LONGEST:
        raise ModelFileError(f"{path}: is too long to be a key or a signature")
    return data


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
