"""What show_config prints, here and where things are missing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cupyconv
from test_import import WITHOUT_CUPY


def rows(text: str) -> list[tuple[str, str]]:
    first, *others = text.splitlines()
    assert first == f"cupyconv {cupyconv.__version__}"
    return [(line[2:].partition("  ")[0], line.strip().split("  ")[-1].strip()) for line in others]


def test_versions_and_precision(capsys: pytest.CaptureFixture[str]) -> None:
    with cupyconv.precision("tf32"):
        cupyconv.show_config()
    found = dict(rows(capsys.readouterr().out))
    assert found["Python"].startswith(".".join(map(str, sys.version_info[:3])))
    assert found["NumPy"] == np.__version__
    assert found["precision"] == "tf32"
    assert "missing" in found


def test_the_cache(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kernel.cubin").write_bytes(bytes(1_500_000))
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    cupyconv.show_config()
    found = dict(rows(capsys.readouterr().out))
    assert found["kernel cache"] == f"{tmp_path}, 1 files, 1.5 MB"


def test_what_is_missing() -> None:
    code = f"{WITHOUT_CUPY}\nimport cupyconv\ncupyconv.show_config()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    missing = [text for name, text in rows(done.stdout) if name == "missing"]
    assert len(missing) == 1
    assert missing[0].startswith("CuPy: only NumPy arrays can be convolved (No module named 'cupy'")


@pytest.mark.gpu
def test_devices(capsys: pytest.CaptureFixture[str]) -> None:
    import cupy

    cupyconv.show_config()
    found = dict(rows(capsys.readouterr().out))
    for device in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(device) as current:
            capability = ".".join(current.compute_capability)
        assert f"compute capability {capability}, " in found[f"device {device}"]
    assert found["missing"] == "nothing"
    assert re.fullmatch(r"\d+\.\d+", found["CUDA driver"])
