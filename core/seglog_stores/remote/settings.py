"""The settings of an object store's clients: credentials, region, endpoint. They are never shown.

Their names are the environment variables of the stores' own tools, in upper or lower case. A process without them in
its environment, such as a task on another machine, receives them as `StoreSettings`, which override the environment.
Credentials belong together: a given key is never combined with a token from the environment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from seglog.errors import ConfigError
from seglog_stores.remote.limits import VARIABLES as LIMITS

_S3_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_CREDENTIALS = {
    "s3": _S3_CREDENTIALS,
    "gs": ("GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_BEARER_TOKEN"),
    "az": (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_TOKEN",
        "AZURE_STORAGE_CLIENT_ID",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_STORAGE_TENANT_ID",
    ),
}
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "s3": (
        *_S3_CREDENTIALS,
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        *ENDPOINTS,
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
        "AWS_SKIP_SIGNATURE",
        "AWS_REQUEST_PAYER",
        "AWS_S3_EXPRESS",
        "AWS_SSE_CUSTOMER_KEY_BASE64",
    ),
    "gs": (*_CREDENTIALS["gs"], "GOOGLE_SKIP_SIGNATURE", "GOOGLE_BASE_URL"),
    "az": (
        "AZURE_STORAGE_ACCOUNT_NAME",
        *_CREDENTIALS["az"],
        "AZURE_STORAGE_ENDPOINT",
        "AZURE_SKIP_SIGNATURE",
    ),
}
KNOWN = frozenset((*LIMITS, *(name for names in VARIABLES.values() for name in names)))


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Variables by name, sorted. Its repr omits them; its pickle includes them."""

    values: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> StoreSettings:
        """Takes the known settings from `given`, ignores the rest. Raises ConfigError for incomplete credentials."""
        values = {name.upper(): value for name, value in given.items() if name.upper() in KNOWN and value}
        missing = [name for name in _S3_CREDENTIALS[:2] if name not in values]
        if len(missing) == 1 or (missing and _S3_CREDENTIALS[2] in values):
            raise ConfigError(f"{' and '.join(missing)}: missing, although the rest of these credentials is given")
        return cls(tuple(sorted(values.items())))

    def beside(self, environment: Mapping[str, str], schemes: Collection[str]) -> StoreSettings:
        """Returns these settings, completed from an environment for stores and web servers of these schemes."""
        values = dict(self.values)
        for scheme in schemes:
            own = any(name in values for name in _CREDENTIALS.get(scheme, ()))
            for name in VARIABLES.get(scheme, ()):
                if environment.get(name) and not (own and name in _CREDENTIALS[scheme]):
                    values.setdefault(name, environment[name])
        for name in LIMITS if values or schemes else ():
            if environment.get(name):
                values.setdefault(name, environment[name])
        return StoreSettings(tuple(sorted(values.items())))

    def over(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the environment with these settings applied."""
        return {**environment, **dict(self.values)}

    def s3_key(self) -> tuple[str, str, str | None] | None:
        """Returns key id, secret and token (or None); None if the environment's credentials apply."""
        values = dict(self.values)
        key, secret, token = (values.get(name) for name in _S3_CREDENTIALS)
        return None if key is None or secret is None else (key, secret, token)

    def config(self, scheme: str) -> dict[str, str]:
        """Returns obstore's `config` for stores of this scheme, without what `s3_key` returns."""
        wanted = [name for name in VARIABLES.get(scheme, ()) if name not in (*_S3_CREDENTIALS, *ENDPOINTS)]
        return {name.lower(): value for name, value in self.values if name in wanted}


NO_SETTINGS = StoreSettings()
