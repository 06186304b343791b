"""What the errors of file systems mean: why a store refused, and what to do about it.

Pure rules, of the codes that S3 answers with ("Error responses" in the reference of Amazon's S3 API), as
botocore and Arrow report them, and of the numbers of the operating system's errors.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a store refused, and what to do; ``{right}`` stands for the right that it asked for."""

    reason: str
    remedy: str


_KEYS = "Correct the connection's storage_options, or what its storage_conn_id names"
_DENIED = Refusal("the store denies it", "Grant {right} for it to the user of these credentials")
_EXPIRED = Refusal(
    "the credentials have expired",
    "Renew them: the next try takes them from the connection. Let temporary ones last as long as the job",
)
_ELSEWHERE = Refusal(
    "the bucket is in another region than the request",
    'Set the region: storage_options {{"client_kwargs": {{"region_name": "…"}}}}',
)
_BUSY = Refusal("the store is overloaded", "Run this again later")
_AWAY = Refusal(
    "the store does not answer", "Check endpoint_url in storage_options, and the network; then run this again"
)
_NO_KEYS = Refusal(
    "there are no credentials for the store",
    "Give the connection storage_options or a storage_conn_id, or this machine a role",
)
# Answers to HEAD have no body, so only their status is known.
_OF_CODES = {
    "accessdenied": _DENIED,
    "403": Refusal(
        "the store denies it, or the credentials are not its own",
        "Check the keys, and grant {right} for it to their user",
    ),
    "nosuchbucket": Refusal("the bucket does not exist", "Correct the path, or create the bucket"),
    "invalidaccesskeyid": Refusal("the store has no such access key", _KEYS),
    "signaturedoesnotmatch": Refusal("the secret does not belong to the access key", _KEYS),
    "invalidtoken": Refusal("the session token is none of this access key", _KEYS),
    "expiredtoken": _EXPIRED,
    "tokenrefreshrequired": _EXPIRED,
    "400": Refusal(
        "the store refuses the request: temporary credentials have expired, or the region is another",
        "Renew the credentials, or set the region in storage_options",
    ),
    "permanentredirect": _ELSEWHERE,
    "authorizationheadermalformed": _ELSEWHERE,
    "301": _ELSEWHERE,
    "requesttimetooskewed": Refusal(
        "the clock of this machine differs from the store's by too much", "Set the clock (NTP)"
    ),
    "slowdown": _BUSY,
    "serviceunavailable": _BUSY,
    "503": _BUSY,
    "networkconnection": _AWAY,
}
# Errors without an answer, by their classes in botocore.
_OF_CLASSES = {
    "NoCredentialsError": _NO_KEYS,
    "PartialCredentialsError": _NO_KEYS,
    "EndpointConnectionError": _AWAY,
    "ConnectTimeoutError": _AWAY,
    "ReadTimeoutError": _AWAY,
    "ConnectionClosedError": _AWAY,
    "HTTPClientError": _AWAY,
}
_FULL = Refusal("the disk is full", "Make room there, or write elsewhere; then run this again")
_QUOTA = Refusal(
    "the quota of this process's user is used up there",
    "Make room, or have the quota raised; then run this again",
)
_OF_NUMBERS = {errno.ENOSPC: _FULL, errno.EDQUOT: _QUOTA}
_RIGHTS = {
    "HeadObject": "s3:GetObject (and s3:ListBucket)",
    "HeadBucket": "s3:ListBucket",
    "ListObjects": "s3:ListBucket",
    "ListObjectsV2": "s3:ListBucket",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "DeleteObjects": "s3:DeleteObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "CopyObject": "s3:GetObject and s3:PutObject",
}
_OF_ARROW = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during (\w+) operation")
_NOT_FOUND = Refusal("there is no such file, directory or bucket", "Check the path")


def explained(error: BaseException) -> str:
    """Return why a file system refused and what to do, as sentences without the last full stop."""
    refusal, operation = _refusal(error)
    if refusal is None:
        return f"{_first_line(error)}. Check the path, and your permissions for it"
    return f"{refusal.reason}. {refusal.remedy.format(right=right_for(operation))}"


def reason_of(error: BaseException) -> str:
    """Return what an error of a file system says, in a line."""
    refusal, operation = _refusal(error)
    if refusal is None:
        return _first_line(error)
    return refusal.reason + (f" ({right_for(operation)})" if refusal is _DENIED else "")


def reason_of_code(code: str, message: str, operation: str) -> str:
    """Return the reason for a code that stands in an answer to a request for many objects."""
    refusal = _OF_CODES.get(_normal(code))
    if refusal is None:
        return message or code
    return refusal.reason + (f" ({right_for(operation)})" if refusal is _DENIED else "")


def right_for(operation: str) -> str:
    """Return the right of a policy that an operation of S3's API needs.

    >>> right_for("ListObjectsV2"), right_for("PutObject")
    ('s3:ListBucket', 's3:PutObject')
    """
    return _RIGHTS.get(operation, f"s3:{operation}")


def _refusal(error: BaseException) -> tuple[Refusal | None, str]:
    for one in _chain(error):
        code, operation = _answer(one)
        found = _OF_CODES.get(_normal(code)) or _OF_CLASSES.get(type(one).__name__) or _of_number(one)
        if found is not None:
            return found, operation
    return (_NOT_FOUND if isinstance(error, FileNotFoundError) else None), ""


def _of_number(error: BaseException) -> Refusal | None:
    return _OF_NUMBERS.get(error.errno or 0) if isinstance(error, OSError) else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it: drivers put errors of Python around those of the store."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _answer(error: BaseException) -> tuple[str, str]:
    """Return the store's code and the operation; empty where the error has none."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's ClientError
        code = (response.get("Error") or {}).get("Code", "")
        return str(code), str(getattr(error, "operation_name", ""))
    found = _OF_ARROW.search(str(error))
    if found is None:
        return "", ""
    return (found[2] or "" if found[1] == "UNKNOWN" else found[1]), found[3]


def _normal(code: str) -> str:
    return code.replace("_", "").lower()


def _first_line(error: BaseException) -> str:
    first, _, rest = str(error).strip().partition("\n")
    if first.endswith(":"):  # Arrow's, of several objects
        first = f"{first} {rest.partition(chr(10))[0]}"
    return (first or type(error).__name__).rstrip(". ")
