"""Paths of the repository, for tests that read its files, and the scripts that make its pages."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

TESTS = Path(__file__).resolve().parents[1]
SUPPORT = TESTS / "support"
ROOT = TESTS.parent
SCRIPTS = ROOT / "docs" / "scripts"


def script(name: str) -> ModuleType:
    """Loads docs/scripts/name.py as the module docs_name, as numba imports a package called coverage.

    Python looks for the scripts that it imports in its folder; `sys.path` is as before when it is loaded.
    """
    own, folders = f"docs_{name}", list(sys.path)
    sys.path.insert(0, str(SCRIPTS))
    spec = importlib.util.spec_from_file_location(own, SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module  # where its dataclasses look for their annotations
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = folders
    return module
