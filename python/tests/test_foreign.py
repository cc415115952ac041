"""Another project's package `pipewright`, whose files are where these were installed."""

import shutil
import sys
from pathlib import Path

import pytest

import pipewright
from pipewright._std import std


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copies the installed package, so that its files can be replaced."""
    shutil.copytree(Path(pipewright.__file__).parent, tmp_path / "pipewright")
    return tmp_path


def error_of(folder: Path, code: str) -> str:
    done = std.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1, done
    return done.stderr.splitlines()[-1]


def test_the_copy_works(copy: Path) -> None:
    code = "import pipewright; print(pipewright.run(['true']).returncode, pipewright.__file__)"
    done = std.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True)
    assert done.stdout.split() == ["0", str(copy / "pipewright" / "__init__.py")], done


def test_a_foreign_package_in_the_way_is_a_clear_error(copy: Path) -> None:
    (copy / "pipewright" / "__init__.py").write_text("def pipeline(): pass\n")
    error = error_of(copy, "import pipewright.ipc")
    assert error.startswith(f"ImportError: {copy}/pipewright/__init__.py is not of pipewright-process"), error
    assert "pip install --force-reinstall pipewright-process" in error


def test_a_module_of_another_version_is_a_clear_error(copy: Path) -> None:
    init = copy / "pipewright" / "__init__.py"
    init.write_text(init.read_text().replace(pipewright.__version__, "0.0.7"))
    assert "another version, was installed over it" in error_of(copy, "import pipewright")


def test_a_native_module_that_is_gone_is_a_clear_error(copy: Path) -> None:
    for file in (copy / "pipewright").glob("_pipewright*.so"):
        file.unlink()
    error = error_of(copy, "import pipewright")
    assert error.startswith(f"ImportError: the native module of pipewright is not beside {copy}"), error
