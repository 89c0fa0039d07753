"""Credentials from Amazon's profiles: AWS_PROFILE, ~/.aws/credentials and ~/.aws/config.

obstore takes keys from variables, a web identity, and a container's or an instance's role, but reads no profiles. If
none of the former is configured and there are profiles, boto3 reads them, with assumed roles, single sign-on and
credential processes. obstore calls it again when credentials expire. They are never printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seglog import extras
from seglog.errors import ConfigError
from seglog.remote_path import RemotePath

# With one of these set, obstore needs no profile.
_ENOUGH = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "credentials", "AWS_CONFIG_FILE": "config"}


def profile_settings(root: RemotePath, environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns the keyword arguments of S3Store from a profile; {} if there is none, or none is needed.

    Raises ConfigError if the profile in AWS_PROFILE does not exist or has no credentials, or if boto3 is missing.
    """
    name = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    if any(environment.get(each) for each in _ENOUGH) or not (name or _has_files(environment)):
        return {}
    try:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        if name:
            raise ConfigError(f"{root}: AWS_PROFILE is set, but profiles need boto3: {extras.advice('aws')}") from None
        return {}  # an instance may still have a role
    try:
        session = Session(profile=name)
        if session.get_credentials() is None:
            if name:
                raise ConfigError(f"{root}: the profile {name} has no credentials")
            return {}
        provider = Boto3CredentialProvider(session)
        provider()  # missing credentials are an error here, and not a failed request later
        found: dict[str, Any] = {"credential_provider": provider}
        region = session.get_config_variable("region")
        if region and not any(environment.get(each) for each in _REGIONS):
            found["region"] = region
        if {"endpoint_url", "services"} & session.get_scoped_config().keys():  # the profile may name another server
            found["endpoint"] = session.create_client("s3", region_name=region or "us-east-1").meta.endpoint_url
        return found
    except (BotoCoreError, ClientError) as error:
        which = f"the profile {name}" if name else "the default profile"
        reason = f"{type(error).__name__} (`aws sts get-caller-identity` shows the details)"
        raise ConfigError(f"{root}: cannot get the credentials of {which}: {reason}") from None


def _has_files(environment: Mapping[str, str]) -> bool:
    home = Path(environment.get("HOME") or Path.home()) / ".aws"
    return any(Path(environment.get(variable) or home / name).is_file() for variable, name in _FILES.items())
