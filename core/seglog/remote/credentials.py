"""Credentials of Amazon's profiles: AWS_PROFILE, ~/.aws/credentials and ~/.aws/config.

obstore takes keys from variables, a web identity, a container's or an instance's role; it reads no profiles. Where
nothing of these is said and there are profiles, boto3 reads them, with all that they may say: roles to assume, single
sign-on, processes to ask. obstore asks it again when credentials run out. None of it is ever printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seglog.errors import ConfigError
from seglog.remote_path import RemotePath

# Where one of these is set, obstore knows what to do.
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
    """What S3Store needs of a profile, as its keyword arguments; {} where there is none, or none is needed.

    ConfigError where AWS_PROFILE names one that is not there, has no credentials, or needs boto3, which is missing.
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
            raise ConfigError(
                f"{root}: AWS_PROFILE is set, and profiles are read by boto3: pip install 'seglog[aws]'"
            ) from None
        return {}  # an instance may have a role all the same
    try:
        session = Session(profile=name)
        if session.get_credentials() is None:
            if name:
                raise ConfigError(f"{root}: the profile {name} has no credentials")
            return {}
        provider = Boto3CredentialProvider(session)
        provider()  # what cannot be got is an error here, and not an answer that cannot be read later
        found: dict[str, Any] = {"credential_provider": provider}
        region = session.get_config_variable("region")
        if region and not any(environment.get(each) for each in _REGIONS):
            found["region"] = region
        if {"endpoint_url", "services"} & session.get_scoped_config().keys():  # it may lead to another server
            found["endpoint"] = session.create_client("s3", region_name=region or "us-east-1").meta.endpoint_url
        return found
    except (BotoCoreError, ClientError) as error:
        which = f"the profile {name}" if name else "the default profile"
        reason = f"{type(error).__name__}, as `aws sts get-caller-identity` says in full"
        raise ConfigError(f"{root}: the credentials of {which} cannot be got: {reason}") from None


def _has_files(environment: Mapping[str, str]) -> bool:
    home = Path(environment.get("HOME") or Path.home()) / ".aws"
    return any(Path(environment.get(variable) or home / name).is_file() for variable, name in _FILES.items())
