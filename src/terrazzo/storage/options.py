"""Storage options: names and values as obstore spells them, in one flat mapping of text.

    S3       aws_access_key_id  aws_secret_access_key  aws_session_token  aws_region  aws_endpoint
             aws_skip_signature  aws_virtual_hosted_style_request  …
    GCS      google_service_account (a path)  google_service_account_key (its content)  …
    Azure    azure_storage_account_name  azure_storage_account_key  azure_storage_sas_key  …
    client   timeout  connect_timeout  (such as "30s")  allow_http  proxy_url  user_agent  …
    retries  max_retries  retry_timeout (seconds)

Client options may carry the prefix of the store (`aws_allow_http`). What is not given comes from the
environment (`AWS_ACCESS_KEY_ID`, …) as the vendor's own tools read it. Local and memory stores take none.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from terrazzo.errors import InvalidRequestError

_CLIENT = frozenset(
    """
    allow_http allow_invalid_certificates connect_timeout default_content_type http1_only
    http2_keep_alive_interval http2_keep_alive_timeout http2_keep_alive_while_idle http2_max_frame_size
    http2_only pool_idle_timeout pool_max_idle_per_host proxy_ca_certificate proxy_excludes proxy_url
    randomize_addresses read_timeout root_certificate timeout user_agent
    """.split()  # noqa: SIM905 - twenty names read best as words
)
_STORE_PREFIX = re.compile(r"^(aws|azure|google)_")
_SECRET = re.compile(r"key|secret|token|password|sas|credential")

# obstore's 30 s end a large part on a slow line, and its 3 minutes of retries outlast a reader's patience.
_DEFAULT_CLIENT = {"connect_timeout": "5s", "timeout": "120s"}
_DEFAULT_RETRIES, _DEFAULT_RETRY_SECONDS = 8, 90.0


@dataclass(frozen=True, slots=True, repr=False)
class Options:
    """Storage options, sorted by who takes them. Has no repr, because it holds credentials."""

    store: Mapping[str, str]
    client: Mapping[str, str]
    retry: Mapping[str, Any]

    @classmethod
    def split(cls, options: Mapping[str, str]) -> "Options":
        store, client = dict[str, str](), dict(_DEFAULT_CLIENT)
        retries, seconds = _DEFAULT_RETRIES, _DEFAULT_RETRY_SECONDS
        for name, value in options.items():
            plain = _STORE_PREFIX.sub("", name.lower())
            if plain in _CLIENT:
                client[plain] = value
            elif plain == "max_retries":
                retries = int(_number(name, value))
            elif plain == "retry_timeout":
                seconds = _number(name, value)
            else:
                store[name] = value
        return cls(store, client, {"max_retries": retries, "retry_timeout": timedelta(seconds=seconds)})


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidRequestError(f"storage option {name!r} takes a number") from None


def one_line(error: BaseException, options: Mapping[str, str]) -> str:
    """The reason of an obstore error: the server's own words if it gave any, and nothing secret."""
    text = str(error).split("\n\nDebug source", 1)[0]
    if message := re.search(r"<Message>\s*([^\n<]+)", text):
        text = message[1]
    else:
        text = re.sub(r"(\w+://[^\s?]*)\?\S*", r"\1", text)  # a signature may stand in the query
        text = text.rsplit(" - ", 1)[-1]
    for name, value in options.items():
        if len(value) > 3 and _SECRET.search(name.lower()):
            text = text.replace(value, "…")
    text = " ".join(text.split()).rstrip(": ")
    return text if len(text) <= 300 else text[:299] + "…"
