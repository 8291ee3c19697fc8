"""Dockerfile, compose.yaml and the systemd unit: what can be checked without building an image."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from configparser import RawConfigParser
from pathlib import Path

import pytest
import yaml

from whatelse.server.settings import Settings

ROOT = Path(__file__).parents[1]


def test_image_is_locked_by_hash_and_not_root() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert "--require-hashes -r /tmp/requirements-serve.txt" in text and "--no-deps /wheels" in text
    assert re.search(r"^USER 10001$", text, re.M) and "HEALTHCHECK" in text and "/healthz" in text
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M):
        assert all((ROOT / name).exists() for name in copied.split()), copied


def test_compose_names_settings_that_exist_and_runs_read_only() -> None:
    found = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    serving = found["services"]["whatelse"]
    assert serving["read_only"] is True and serving["cap_drop"] == ["ALL"]
    named = {name.removeprefix("WHATELSE_").lower() for name in serving["environment"] if name.startswith("WHATELSE_")}
    assert named <= set(Settings.model_fields) and "database" in named
    assert set(found["services"]) == {"whatelse", "database", "nginx"}


def test_unit_is_confined_and_keeps_its_data() -> None:
    unit = RawConfigParser(strict=False)
    unit.read(ROOT / "deploy" / "whatelse.service")
    service = unit["Service"]
    for name in ("DynamicUser", "NoNewPrivileges", "PrivateTmp", "ProtectHome"):
        assert service[name] == "yes", name
    assert service["ProtectSystem"] == "strict" and service["StateDirectory"] == "whatelse"
    assert service["ExecReload"].endswith("$MAINPID")


def test_nginx_reads_its_configuration(tmp_path: Path) -> None:
    nginx = shutil.which("nginx")
    if nginx is None or shutil.which("openssl") is None:
        pytest.skip("no nginx or openssl here")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x"]
    subprocess.run(
        [*made, "-keyout", "server.key", "-out", "server.crt"], cwd=tmp_path, check=True, capture_output=True
    )
    text = (ROOT / "deploy" / "nginx.conf").read_text("utf-8")
    text = text.replace("/etc/nginx/tls", str(tmp_path)).replace("http://whatelse:8000", "http://127.0.0.1:8000")
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid;\nerror_log stderr;\n{text}")
    done = subprocess.run(
        [nginx, "-t", "-p", str(tmp_path), "-c", "nginx.conf"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(1800)
@pytest.mark.skipif("WHATELSE_IMAGE_STEPS" not in os.environ, reason="set WHATELSE_IMAGE_STEPS: the steps take minutes")
def test_steps_of_the_image_in_a_clean_environment(tmp_path: Path) -> None:
    """What the Dockerfile runs, without Docker: the lock by hash, the wheel without dependencies."""
    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        pytest.skip("the lock file is for Python 3.11 on linux")
    python = tmp_path / "venv" / "bin" / "python"
    venv.create(tmp_path / "venv", with_pip=True)
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    pip = (str(python), "-m", "pip", "--quiet", "--disable-pip-version-check")
    locked = (*pip, "install", "--require-hashes", "-r", str(ROOT / "requirements-serve.txt"))
    first = subprocess.run(locked, env=clean, capture_output=True, text=True)
    if first.returncode and "Could not find a version" in first.stderr:
        pytest.skip("no package index here")
    assert first.returncode == 0, first.stderr[-2000:]
    run(*pip, "wheel", "--no-deps", "--wheel-dir", "wheels", str(ROOT))
    run(*pip, "install", "--no-deps", *map(str, (tmp_path / "wheels").glob("*.whl")))
    assert "cds_hooks" in run(str(python.with_name("whatelse")), "serve", "--settings")
    run(*pip, "check")
