"""The tokens of Secrets of the type kubernetes.io/service-account-token.

    the account exists --token, CA, namespace or UID of the account is missing--> written
    no account with this name and UID--------------------------------------------> the Secret is deleted

Every API server does this for the Secrets in its cache: the keys stay with the API servers, and controllers need no access to
Secrets. Writes of several servers are the same, and the first one wins. A deletion is decided after a refresh of the caches.

Source: pkg/controller/serviceaccount/tokens_controller.go of Kubernetes 1.36, where the controllers do this
"""

import logging
from collections.abc import Awaitable, Callable

from pinnace.api.core_v1_pb2 import Secret, ServiceAccount
from pinnace.api.resources import SECRETS, SERVICE_ACCOUNTS
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import DeleteRequest
from pinnace.apiserver.auth.authentication import SERVER
from pinnace.apiserver.auth.tokens import TOKEN_KEY, ObjectId, TokenSettings, encode_legacy_claims
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheEntry, CacheError, SelectionPredicate
from pinnace.apiserver.registry.admission import WriteRequest
from pinnace.apiserver.registry.deletion import copy_without_version
from pinnace.apiserver.registry.mutation import ObjectVersion
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.registry.strategies.configuration import SERVICE_ACCOUNT_NAME, SERVICE_ACCOUNT_TOKEN
from pinnace.apiserver.storage.interface import StorageError
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import apply_in_slices

log = logging.getLogger(__name__)

INTERVAL, RETRY = 0.1, 5.0
"""Seconds between two looks for changes, and after a failed write."""
REST = 20.0
"""The pause after a look as a multiple of its duration, which grows with the number of Secrets."""
SERVICE_ACCOUNT_UID = "kubernetes.io/service-account.uid"
CA_KEY, NAMESPACE_KEY = "ca.crt", "namespace"
_REQUEST = WriteRequest(SERVER, field_manager="kube-apiserver")
_TYPE = SERVICE_ACCOUNT_TOKEN.encode()
_EVERY_SECRET = SelectionPredicate.parse(SECRETS, "", "", "")


def is_token_secret_of(secret: Secret, account: ServiceAccount | None) -> bool:
    """Report whether the account is that of the Secret."""
    uid = secret.metadata.annotations.get(SERVICE_ACCOUNT_UID)
    return account is not None and (not uid or uid == account.metadata.uid)


def fill_secret(secret: Secret, account: ServiceAccount, settings: TokenSettings) -> Secret | None:
    """Return the Secret with all data of a token; None if nothing is missing. `secret` is not changed."""
    namespace = secret.metadata.namespace
    data = {NAMESPACE_KEY: namespace.encode()} | ({CA_KEY: settings.root_ca} if settings.root_ca else {})
    uid = account.metadata.uid
    if not secret.data.get(TOKEN_KEY):
        claims = encode_legacy_claims(namespace, ObjectId(account.metadata.name, uid), secret.metadata.name)
        data[TOKEN_KEY] = settings.keys().sign(claims).encode()
    missing = {key: value for key, value in data.items() if secret.data.get(key) != value}
    if not missing and secret.metadata.annotations.get(SERVICE_ACCOUNT_UID) == uid:
        return None
    filled: Secret = copy_without_version(SECRETS, secret)
    filled.data.update(missing)
    filled.metadata.annotations[SERVICE_ACCOUNT_UID] = uid
    return filled


def _parse_token_secret(entry: CacheEntry[Secret]) -> Secret | None:
    if _TYPE not in entry.value:
        return None
    secret = entry.parse_uncached()
    return secret if secret.type == SERVICE_ACCOUNT_TOKEN else None


class TokenSecretFiller:
    """`store`: of Secrets. `refresh` brings the caches up to etcd's present revision. `run` needs loaded caches."""

    def __init__(
        self,
        store: Store[Secret],
        cacher: Cacher,
        settings: TokenSettings,
        refresh: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._store = store
        self._secrets = cacher.cache_of(SECRETS)
        self._accounts = cacher.cache_of(SERVICE_ACCOUNTS)
        self._settings = settings
        self._refresh = refresh
        self._clock = clock

    async def run(self) -> None:
        """Process all changes until cancelled."""
        seen = (-1, -1)
        while True:
            versions, started = (self._secrets.version, self._accounts.version), self._clock.monotonic()
            if versions == seen or await self._process_secrets():
                seen, pause = versions, INTERVAL
            else:
                pause = RETRY
            await self._clock.sleep(max(pause, REST * (self._clock.monotonic() - started)))

    async def _process_secrets(self) -> bool:
        """Fill or delete Secrets. Return False if a write has failed."""
        done, orphans = True, list[Secret]()
        for secret in await self._token_secrets():
            account = self._account_of(secret)
            if account is None or not is_token_secret_of(secret, account):
                orphans.append(secret)
            elif fill_secret(secret, account, self._settings) is not None:
                done = await self._write_secret(secret, account) and done
        return (not orphans or await self._delete_orphans()) and done

    async def _token_secrets(self) -> list[Secret]:
        """Return the Secrets of the type. Only Secrets whose encoding contains it are parsed."""
        entries = await apply_in_slices(_parse_token_secret, self._secrets.select(_EVERY_SECRET), self._clock)
        return [secret for secret in entries if secret is not None]

    def _account_of(self, secret: Secret) -> ServiceAccount | None:
        name = secret.metadata.annotations.get(SERVICE_ACCOUNT_NAME, "")
        entry = self._accounts.get(SERVICE_ACCOUNTS.key(secret.metadata.namespace, name))
        return entry.obj if entry is not None else None

    async def _write_secret(self, secret: Secret, account: ServiceAccount) -> bool:
        def change(present: ObjectVersion[Secret]) -> Secret:
            return fill_secret(present.obj, account, self._settings) or present.obj

        metadata = secret.metadata
        try:
            (outcome,) = await self._store.modify_object(metadata.namespace, metadata.name, change, _REQUEST)
        except (CacheError, StorageError) as error:
            log.warning("cannot write the token of secret %s/%s: %s", metadata.namespace, metadata.name, error)
            return False
        return not isinstance(outcome, Refusal) or outcome.code is Code.NOT_FOUND

    async def _delete_orphans(self) -> bool:
        """Delete the Secrets of missing accounts."""
        try:
            await self._refresh()
            secrets = await self._token_secrets()
            doomed = [secret for secret in secrets if not is_token_secret_of(secret, self._account_of(secret))]
            requests = [DeleteRequest(namespace=secret.metadata.namespace, name=secret.metadata.name) for secret in doomed]
            for request, secret in zip(requests, doomed, strict=True):
                request.options.preconditions.uid = secret.metadata.uid
            outcomes = await self._store.delete(requests, _REQUEST) if requests else []
        except (CacheError, StorageError) as error:
            log.warning("cannot delete the token secrets of missing service accounts: %s", error)
            return False
        return all(not isinstance(outcome, Refusal) or outcome.code is Code.NOT_FOUND for outcome in outcomes)
