"""The module `subprocess` of the standard library, also where pipewright has taken its place in `sys.modules`."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess as std
else:
    taken = sys.modules.get("subprocess")
    if getattr(taken, "__name__", None) == "pipewright":
        del sys.modules["subprocess"]
    try:
        import subprocess as std
    finally:
        if taken is not None:
            sys.modules["subprocess"] = taken

__all__ = ["std"]
