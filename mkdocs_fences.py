"""What the tests read behind a fence's language (`spark`, `notest`) is not for the pages: mkdocs takes one word."""

import re
from typing import Any

_MARKED = re.compile(r"^```python (?:spark|notest)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _MARKED.sub("```python", markdown)
