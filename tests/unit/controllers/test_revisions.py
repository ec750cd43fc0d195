"""The revisions of pod templates."""

import json
from typing import Any

import pytest

from pinnace.api.apps_v1_pb2 import ControllerRevision
from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import PodTemplateSpec
from pinnace.controllers.revisions import (
    decode_template,
    encode_template,
    find_revision,
    hash_revision,
    revision_name,
    revisions_beyond_history,
    sort_revisions,
)

RECORDED: dict[str, Any] = {
    "metadata": {"labels": {"app": "db"}},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "i:1",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    },
}


def template(image: str = "i:1", **labels: str) -> PodTemplateSpec:
    result = from_dict(PodTemplateSpec, RECORDED)
    result.spec.containers[0].image = image
    result.metadata.labels.update(labels)
    return result


def revision(number: int, of: PodTemplateSpec, name: str = "") -> ControllerRevision:
    result = ControllerRevision(revision=number)
    result.metadata.name = name or f"web-{number}"
    result.data.raw = encode_template(of)
    return result


def test_revision_name_is_that_of_a_real_server() -> None:
    """The recorded name of the stateful set `db` with this template."""
    assert revision_name("db", hash_revision(encode_template(template()), 0)) == "db-74bdc768fb"


def test_hash_depends_on_collision_count() -> None:
    data = encode_template(template())
    assert hash_revision(data, 0) != hash_revision(data, 1)


def test_encoded_template_escapes_as_go() -> None:
    assert rb"\u003cb\u003e" in encode_template(template(note="<b>"))


def test_decoded_template_is_the_encoded_one() -> None:
    assert decode_template(revision(1, template("i:<2>", a="ü"))) == template("i:<2>", a="ü")


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"spec":{"template":[]}}', b'{"spec":{"template":{"spec":{"volumes":1}}}}']
)
def test_data_without_template_decodes_to_none(raw: bytes) -> None:
    broken = ControllerRevision()
    broken.data.raw = raw
    assert decode_template(broken) is None


def test_revision_with_other_bytes_of_the_same_template_is_found() -> None:
    stored = revision(1, template())
    stored.data.raw = json.dumps(json.loads(stored.data.raw), indent=1).encode()
    assert find_revision([stored], encode_template(template()), template()) is stored


def test_newest_revision_with_the_template_is_found() -> None:
    revisions = sort_revisions([revision(3, template("b")), revision(1, template("a")), revision(2, template("a"))])
    found = find_revision(revisions, encode_template(template("a")), template("a"))
    assert found is not None and found.revision == 2
    assert find_revision(revisions, encode_template(template("c")), template("c")) is None


def test_history_keeps_live_revisions_and_the_newest_others() -> None:
    revisions = [revision(number, template(f"i:{number}")) for number in range(1, 6)]
    gone = revisions_beyond_history(revisions, ["web-1", "web-5"], 1)
    assert [item.metadata.name for item in gone] == ["web-2", "web-3"]
    assert revisions_beyond_history(revisions, ["web-5"], 10) == []
    assert revisions_beyond_history(revisions, [], -1) == []
