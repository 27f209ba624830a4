"""The engine's advice, which is for callers in Python, in terms of the command line."""

import re

from terrazzo.cli.options import KEY_VARIABLE
from terrazzo.errors import MissingObjectError, StorageError, TerrazzoError

_ADVICE = {
    "open it with its key": f"give --key-file FILE, or set {KEY_VARIABLE}",
    "open it without a key": f"leave out --key-file, and unset {KEY_VARIABLE}",
    "drop one of them, or create the array with allows_duplicates=True": "drop one of them, use upsert, which takes "
    "the last, or create the array with --allow-duplicates",
    "fill the nulls, or declare the attribute with nullable=True": "fill the nulls, or leave these rows out",
    "open it with Group": "name one of its members",
    "add it with evolve(extend_enum=…) first": "in Python, Array.evolve(extend_enum=…) adds labels",
    "a dense array is written box by box": "a dense array is ingested box by box",
    "cast it first": "say --type COLUMN=TYPE, or leave it out with --columns",
}
_OPTION = re.compile(r"^(where|order|columns|region)=")


def in_options(problem: TerrazzoError) -> str:
    text = _OPTION.sub(r"--\1 ", str(problem))
    for said, meant in _ADVICE.items():
        text = text.replace(said, meant)
    remote = "://" in text and "file://" not in text
    if remote and isinstance(problem, StorageError) and not isinstance(problem, MissingObjectError):
        text += "; check the bucket, the credentials in the environment (or --storage), and the network"
    return text
