"""The table of contexts, and what nobody is to see."""

from pinnace.cli.verbs.config import redacted, rows

DOCUMENT = {
    "clusters": [{"name": "far", "cluster": {"server": "a:1,b:2", "certificate-authority-data": "QUJD"}}],
    "contexts": [
        {"name": "near", "context": {"cluster": "gone"}},
        {"name": "far", "context": {"cluster": "far", "user": "me", "namespace": "work"}},
        {"name": "odd", "context": None},
    ],
    "current-context": "far",
}


def test_contexts_in_order() -> None:
    assert rows(DOCUMENT) == [
        ("*", "far", "far", "a:1,b:2", "me", "work"),
        ("", "near", "gone", "", "", ""),
        ("", "odd", "", "", "", ""),
    ]
    assert rows({"clusters": None}) == []


def test_secrets_are_left_out_and_where_they_are_is_not() -> None:
    user = {
        "token": "secret",
        "tokenFile": "/var/token",
        "password": "secret",
        "client-key": "me.key",
        "client-key-data": "secret",
        "auth-provider": {"config": {"id-token": "secret", "client-secret": "secret", "client-id": "me"}},
        "exec": {"command": "aws", "env": [{"name": "KEY", "value": "secret"}]},
        "extensions": [{"name": "ours", "extension": {"dataDir": "/data"}}],
    }
    told = redacted({"users": [{"name": "me", "user": user}], **DOCUMENT})
    assert "secret" not in str(told).replace("client-secret", "") and "QUJD" not in str(told)
    (me,) = told["users"]
    kept = ("tokenFile", "client-key", "extensions")
    assert {key: me["user"][key] for key in kept} == {key: user[key] for key in kept}
    assert me["user"]["exec"] == {"command": "aws", "env": [{"name": "KEY", "value": "REDACTED"}]}
    assert me["user"]["auth-provider"]["config"] == {"id-token": "REDACTED", "client-secret": "REDACTED", "client-id": "me"}
