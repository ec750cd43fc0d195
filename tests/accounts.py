"""Keys of service account tokens for tests."""

from cryptography.hazmat.primitives.asymmetric import ec

from pinnace.apiserver.assembly import ServerSettings
from pinnace.apiserver.auth.tokens import TokenKeys, TokenSettings

ISSUER = "https://kubernetes.default.svc.cluster.local"
PRIVATE = ec.generate_private_key(ec.SECP256R1())
KEYS = TokenKeys(PRIVATE)


def token_settings(keys: TokenKeys = KEYS, **settings: object) -> TokenSettings:
    return TokenSettings(lambda: keys, ISSUER, (ISSUER,), **settings)


def with_accounts(**settings: object) -> ServerSettings:
    """The settings of a server whose pods have credentials. `settings`: of tokens."""
    return ServerSettings(account_tokens=token_settings(**settings))
