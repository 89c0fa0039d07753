"""Limits of object-store access: sizes, simultaneous requests, retries, timeouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from seglog.errors import ConfigError
from seglog.units import parse_duration, parse_integer, parse_size

VARIABLES = _CACHE, _REQUESTS, _RETRIES, _TIMEOUT = (
    "SEGLOG_REMOTE_CACHE",
    "SEGLOG_REMOTE_REQUESTS",
    "SEGLOG_REMOTE_RETRIES",
    "SEGLOG_REMOTE_TIMEOUT",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds. The environment variables `VARIABLES` set some of them."""

    cache_bytes: int = 64 << 20
    block_bytes: int = 256 << 10
    request_bytes: int = 4 << 20
    piece_bytes: int = 1 << 20  # of a streamed request; 512 KiB take 12 % more CPU
    requests_at_once: int = 8
    retries: int = 5
    timeout_s: float = 30.0
    listing_s: float = 60.0

    @property
    def ahead_bytes(self) -> int:
        """How far one file is read ahead: not so far that new bytes evict unread ones."""
        return min(4 * self.request_bytes, self.cache_bytes // 4)

    @property
    def run_bytes(self) -> int:
        """The maximum size of one request; a fraction of a small cache, so that the cache can hold it."""
        return min(self.request_bytes, self.cache_bytes // 4 or self.request_bytes)

    def client(self, allow_http: bool) -> dict[str, Any]:
        """Returns obstore's `client_options`."""
        seconds = timedelta(seconds=self.timeout_s)
        return {"allow_http": allow_http, "timeout": seconds, "connect_timeout": min(seconds, timedelta(seconds=5))}

    def retrying(self) -> dict[str, Any]:
        """Returns obstore's `retry_config`."""
        most = timedelta(seconds=min(2 * self.timeout_s, 240.0))  # credentials may expire soon after
        backoff = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2}
        return {"max_retries": self.retries, "retry_timeout": most, "backoff": backoff}


def limits_of(environment: Mapping[str, str]) -> Limits:
    """Returns the limits that an environment sets. Raises ConfigError with the variable's name."""

    def value(name: str, parse: Callable[[str], int], usual: int, least: int) -> int:
        text = environment.get(name, "")
        try:
            number = parse(text) if text else usual
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from error
        if number < least:
            raise ConfigError(f"{name}: {text} is less than {least}")
        return number

    usual = Limits()
    return Limits(
        cache_bytes=value(_CACHE, parse_size, usual.cache_bytes, 0),
        requests_at_once=value(_REQUESTS, parse_integer, usual.requests_at_once, 1),
        retries=value(_RETRIES, parse_integer, usual.retries, 0),
        timeout_s=value(_TIMEOUT, parse_duration, int(usual.timeout_s * 1000), 1) / 1000,
    )
