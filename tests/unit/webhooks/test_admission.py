"""What webhooks do to writes: as a client of an API server meets it."""

import asyncio
import json
from collections.abc import Awaitable
from contextlib import nullcontext

import pytest

from pinnace.api import admission_pb2 as pb
from pinnace.api.admission_pb2 import AdmissionRequest, AdmissionResponse
from pinnace.api.core_v1_pb2 import Namespace, Node, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import NAMESPACES, PODS
from pinnace.api.selectors import parse_labels
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import BatchResponse, DeleteRequest, PatchRequest
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import Operation, Request, WriteAttributes
from pinnace.apiserver.webhooks.webhook import MAX_ITEMS, QUIET, Webhook, WebhookConfiguration
from pinnace.runtime.clock import SYSTEM_CLOCK
from pinnace.runtime.logs import WebhookFailed
from tests.builders import PodBuilder, make_pod
from tests.clock import FakeClock
from tests.logged import logged
from tests.unit.cacher.world import eventually
from tests.unit.webhooks.world import FakeMeter, FakeTransport, Judge, allow, deny, serving, webhook

EVERY = (Operation.CREATE, Operation.UPDATE, Operation.DELETE)


def pod(name: str = "a") -> PodBuilder:
    return make_pod(name).req(cpu="1")


async def refused(call: Awaitable[object]) -> Rejected:
    with pytest.raises(Rejected) as caught:
        await call
    return caught.value


async def test_each_sees_what_the_one_before_has_made_of_it() -> None:
    first, of_first = webhook(allow('{"metadata": {"labels": {"first": "1"}}}'), mutating=True)
    second, of_second = webhook(allow('{"metadata": {"labels": {"second": "2"}}}'), mutating=True, name="b.example.com")
    third, of_third = webhook(allow(), name="c.example.com")
    async with serving(third, first, second) as server:
        created = await server.create(pod().new())
    seen = [
        sorted(Pod.FromString(item.object).metadata.labels)
        for transport in (of_first, of_second, of_third)
        for item in transport.items
    ]
    assert seen == [[], ["first"], ["first", "second"]]
    assert dict(created.metadata.labels) == {"first": "1", "second": "2"}


async def test_review_contains_the_request() -> None:
    hook, transport = webhook(allow(), *EVERY)
    async with serving(hook) as server:
        await server.create(pod().label("a", "b").new())
        await server.call("Pods/Delete", namespace="default", name="a")
    creation, deletion = transport.items
    assert (creation.apiVersion, creation.kind, creation.resource, creation.subResource) == ("v1", "Pod", "pods", "")
    assert (creation.namespace, creation.name, creation.username) == ("default", "a", "system:unsecured")
    assert (creation.operation, deletion.operation) == (pb.CREATE, pb.DELETE)
    shown = Pod.FromString(creation.object)
    assert shown.metadata.labels["a"] == "b" and shown.spec.restartPolicy == "Always" and not creation.oldObject
    assert Pod.FromString(deletion.oldObject).metadata.name == "a" and not deletion.object


async def test_fields_added_by_a_webhook_get_defaults() -> None:
    patch = '[{"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "x:1"}}]'
    hook, _ = webhook(allow(patch, patchType=PatchRequest.JSON), mutating=True)
    async with serving(hook) as server:
        created = await server.create(pod().new())
    assert [container.terminationMessagePolicy for container in created.spec.containers] == ["File", "File"]


async def test_object_changed_by_a_webhook_is_validated() -> None:
    hook, _ = webhook(allow('{"spec": {"restartPolicy": "Sometimes"}}'), mutating=True)
    async with serving(hook) as server:
        error = await refused(server.create(pod().new()))
    assert error.refusal.code is Code.INVALID_ARGUMENT and "spec.restartPolicy" in str(error)


async def test_webhook_cannot_change_the_identity_of_an_object() -> None:
    hook, transport = webhook(allow('{"metadata": {"uid": "x", "resourceVersion": "7", "generation": 9}}'), mutating=True)
    async with serving(hook) as server:
        created = await server.create(pod().new())
        shown = Pod.FromString(transport.items[0].object)
        assert (created.metadata.uid, created.metadata.generation) == (shown.metadata.uid, 1)


async def test_webhook_may_correct_an_invalid_object() -> None:
    hook, _ = webhook(allow('{"spec": {"restartPolicy": "Never"}}'), Operation.CREATE, mutating=True)
    wrong = pod().new()
    wrong.spec.restartPolicy = "Sometimes"
    async with serving(hook) as server:
        assert (await server.create(wrong)).spec.restartPolicy == "Never"


@pytest.mark.parametrize(
    ("judge", "message", "code"),
    [
        (deny("no cats"), ": no cats", Code.INVALID_ARGUMENT),
        (deny("no cats", Code.PERMISSION_DENIED), ": no cats", Code.PERMISSION_DENIED),
        (deny("no cats", 403), ": no cats", Code.INVALID_ARGUMENT),
        (deny(), " without explanation", Code.INVALID_ARGUMENT),
    ],
)
async def test_denial(judge: Judge, message: str, code: Code) -> None:
    for mutating in (True, False):
        hook, transport = webhook(judge, mutating=mutating)
        async with serving(hook) as server:
            error = await refused(server.create(pod().new()))
            assert str(error) == f'admission webhook "a.example.com" denied the request{message}'
            assert error.refusal.code is code
            assert len(transport.items) == 1
            assert (await refused(server.get("a"))).refusal.code is Code.NOT_FOUND


async def test_first_configured_denial_is_reported() -> None:
    slow, transport = webhook(deny("slow"))
    quick, _ = webhook(deny("quick"), name="b.example.com")
    transport.gate.clear()
    async with serving(slow, quick) as server:
        creating = asyncio.ensure_future(refused(server.create(pod().new())))
        await eventually(lambda: len(transport.items) == 1)
        transport.gate.set()
        assert str(await creating).endswith("denied the request: slow")


async def test_webhook_that_fails() -> None:
    hook, transport = webhook(allow())
    transport.problem = "code UNAVAILABLE: nobody there"
    async with serving(hook) as server:
        error = await refused(server.create(pod().new()))
    assert str(error) == (
        'Internal error occurred: failed calling webhook "a.example.com": code UNAVAILABLE: nobody there'
    )  # fmt: skip
    assert error.refusal.code is Code.INTERNAL
    assert "check the logs of the webhook" in dict(error.refusal.metadata)["hint"]


@pytest.mark.parametrize("ignore", [False, True])
async def test_failures_are_logged_now_and_then(caplog: pytest.LogCaptureFixture, ignore: bool) -> None:
    transport, clock, concerns = FakeTransport(allow()), FakeClock(), frozenset({(Operation.CREATE, PODS)})
    transport.problem = "nobody there"
    configuration = WebhookConfiguration("a.example.com", "nowhere:1", concerns, ignore_failures=ignore)
    async with serving(Webhook(configuration, transport, FakeMeter(), clock)) as server:
        for number in range(4):
            with nullcontext() if ignore else pytest.raises(Rejected):
                await server.create(pod(str(number)).new())
            if number == 2:
                await clock.advance(QUIET)
    assert logged(caplog, WebhookFailed) == [WebhookFailed("a.example.com", ignore, repeats) for repeats in (0, 2)]


async def test_webhook_that_does_not_answer() -> None:
    hook, transport = webhook(allow(), timeout=0.05)
    transport.gate.clear()
    async with serving(hook) as server:
        error = await refused(server.create(pod().new()))
    assert str(error).endswith('failed calling webhook "a.example.com": no response within 0.05 s')


async def test_failures_that_are_ignored() -> None:
    away, transport = webhook(allow(), mutating=True, ignore_failures=True)
    transport.problem = "nobody there"
    silent, _ = webhook(lambda item: AdmissionResponse(uid="another"), name="b.example.com", ignore_failures=True)
    confused, _ = webhook(allow("]"), name="c.example.com", mutating=True, ignore_failures=True)
    forward, _ = webhook(allow('{"metadata": {"name": "b"}}'), name="d.example.com", ignore_failures=True)
    async with serving(away, silent, confused, forward) as server:
        assert (await server.create(pod().new())).metadata.name == "a"


async def test_patch_that_does_not_fit_is_no_failure_to_be_ignored() -> None:
    patch = '[{"op": "remove", "path": "/metadata/labels/absent"}]'
    hook, _ = webhook(allow(patch, patchType=PatchRequest.JSON), mutating=True, ignore_failures=True)
    async with serving(hook) as server:
        assert "absent" in str(await refused(server.create(pod().new())))


@pytest.mark.parametrize(
    ("judge", "mutating", "message"),
    [
        (lambda item: AdmissionResponse(uid="another"), False, "the response does not contain the item"),
        (allow('{"metadata": {"name": "b"}}'), True, "metadata.name: Invalid value"),
        (allow('{"metadata": {"labels": {"a": "b"}}}'), False, "validating webhook may not return response.patch"),
        (allow("]"), True, "patch: not JSON"),
        (allow(json.dumps({"metadata": {"labels": dict.fromkeys(map(str, range(10_001)), "x")}})), True, "more than 10,000"),
    ],
)
async def test_answers_that_are_none(judge: Judge, mutating: bool, message: str) -> None:
    hook, _ = webhook(judge, mutating=mutating)
    async with serving(hook) as server:
        assert message in str(await refused(server.create(pod().new())))


async def test_updates_and_patches() -> None:
    def label(item: AdmissionRequest) -> AdmissionResponse:
        new, old = Pod.FromString(item.object), Pod.FromString(item.oldObject)
        if new.metadata.labels["a"] == "bad":
            return deny("bad")(item)
        return allow(f'{{"metadata": {{"labels": {{"before": "{old.metadata.labels["a"]}"}}}}}}')(item)

    hook, _ = webhook(label, Operation.UPDATE, mutating=True)
    async with serving(hook) as server:
        created = await server.create(pod().label("a", "1").new())
        created.metadata.labels["a"] = "2"
        updated = Pod.FromString(await server.call("Pods/Update", object=created))
        assert dict(updated.metadata.labels) == {"a": "2", "before": "1"}
        patch = {"namespace": "default", "name": "a", "type": PatchRequest.MERGE}
        await server.call("Pods/Patch", **patch, patch=b'{"metadata": {"labels": {"a": "3"}}}')
        assert dict((await server.get("a")).metadata.labels) == {"a": "3", "before": "2"}
        error = await refused(server.call("Pods/Patch", **patch, patch=b'{"metadata": {"labels": {"a": "bad"}}}'))
        assert str(error).endswith("denied the request: bad")
        updated.status.phase = "Running"
        updated.metadata.resourceVersion = ""
        await server.call("Pods/UpdateStatus", object=updated)  # is another resource: pods/status


async def test_webhooks_run_again_for_a_later_version() -> None:
    """What a webhook has seen is what is written, whoever else writes meanwhile."""
    hook, transport = webhook(allow(), Operation.UPDATE)
    async with serving(hook) as server:
        await server.create(pod().label("a", "1").new())
        transport.gate.clear()
        patch = {"namespace": "default", "name": "a", "type": PatchRequest.MERGE}
        writing = asyncio.ensure_future(server.call("Pods/Patch", **patch, patch=b'{"metadata": {"labels": {"b": "1"}}}'))
        await eventually(lambda: len(transport.items) == 1)
        running = pod().build()
        running.metadata.uid = running.metadata.resourceVersion = ""
        running.status.phase = "Running"
        await server.call("Pods/UpdateStatus", object=running)
        transport.gate.set()
        await writing
    seen = [Pod.FromString(item.oldObject).status.phase for item in transport.items]
    assert seen == ["Pending", "Running"]


async def test_deletes() -> None:
    hook, _ = webhook(lambda item: (deny("stay") if item.name == "a" else allow())(item), Operation.DELETE)
    async with serving(hook) as server:
        await server.create_batch([pod("a").new(), pod("b").new()])
        doomed = [DeleteRequest(namespace="default", name=name) for name in ("a", "b")]
        items = BatchResponse.FromString(await server.call("Pods/DeleteBatch", items=doomed)).items
        assert items[0].error.message.endswith("denied the request: stay") and not items[1].HasField("error")
        assert (await refused(server.get("b"))).refusal.code is Code.NOT_FOUND


@pytest.mark.parametrize(
    ("patch", "kind", "ignore", "message"),
    [
        ("[]", PatchRequest.JSON, False, ""),
        ("{}", PatchRequest.MERGE, False, ""),
        ("[{", PatchRequest.JSON, True, ""),
        ("[{", PatchRequest.JSON, False, 'failed calling webhook "a.example.com": patch: not JSON'),
        ('{"metadata": {}}', PatchRequest.MERGE, True, "to modify the object, which is not supported for this operation"),
    ],
)
async def test_patch_of_a_delete(patch: str, kind: PatchRequest.Type, ignore: bool, message: str) -> None:
    """One that says nothing does nothing, one that cannot be read is a failure, and any other a mistake of the webhook's."""
    hook, _ = webhook(allow(patch, patchType=kind), Operation.DELETE, mutating=True, ignore_failures=ignore)
    async with serving(hook) as server:
        await server.create(pod().new())
        deleting = server.call("Pods/Delete", namespace="default", name="a")
        if message:
            assert message in str(await refused(deleting))
        else:
            await deleting
            assert (await refused(server.get("a"))).refusal.code is Code.NOT_FOUND


async def test_dry_runs() -> None:
    quiet, transport = webhook(allow('{"metadata": {"labels": {"a": "b"}}}'), mutating=True)
    loud, of_loud = webhook(allow(), name="b.example.com", dry_run=False)
    dry = {"options": {"dryRun": ["All"]}}
    async with serving(quiet) as server:
        shown = await server.create(pod().new(), **dry)
        assert shown.metadata.labels["a"] == "b" and transport.items[0].dryRun
        assert (await refused(server.get("a"))).refusal.code is Code.NOT_FOUND
    async with serving(loud) as server:
        error = await refused(server.create(pod().new(), **dry))
        assert str(error) == 'admission webhook "b.example.com" does not support dry run' and not of_loud.asked


async def test_batch_is_one_message() -> None:
    hook, transport = webhook(lambda item: (deny("odd") if item.name in ("p1", "p3") else allow())(item))
    async with serving(hook) as server:
        response = await server.create_batch(pod(f"p{number}").new() for number in range(MAX_ITEMS + 100))
    assert [len(message.items) for message in transport.asked] == [MAX_ITEMS, 100]
    assert [index for index, item in enumerate(response.items) if item.HasField("error")] == [1, 3]


async def test_selectors() -> None:
    by_object, of_object = webhook(deny("object"), objects=parse_labels("a=b"))
    by_namespace, of_namespace = webhook(deny("ns"), name="b.example.com", namespaces=parse_labels("house=ours"))
    async with serving(by_object, by_namespace) as server:
        await server.create(pod("a").new())
        assert not of_object.asked and not of_namespace.asked
        assert str(await refused(server.create(pod("b").label("a", "b").new()))).endswith(": object")
        ours = Namespace(metadata=ObjectMeta(name="ours", labels={"house": "ours"}))
        await server.call("Namespaces/Create", object=ours)
        assert str(await refused(server.create(make_pod("c", namespace="ours").req(cpu="1").new()))).endswith(": ns")


@pytest.mark.parametrize(("before", "after", "asked"), [("ours", "theirs", 0), ("theirs", "ours", 1)])
async def test_namespace_update_matches_webhooks_by_its_new_labels(before: str, after: str, asked: int) -> None:
    """As of one that is created."""
    transport = FakeTransport(allow())
    concerns = frozenset({(Operation.UPDATE, NAMESPACES)})
    configuration = WebhookConfiguration("a.example.com", "nowhere:1", concerns, namespaces=parse_labels("house=ours"))
    async with serving(Webhook(configuration, transport, FakeMeter(), SYSTEM_CLOCK)) as server:
        for method, house in (("Create", before), ("Update", after)):
            namespace = Namespace(metadata=ObjectMeta(name="team", labels={"house": house}))
            await server.call(f"Namespaces/{method}", object=namespace)
    assert len(transport.items) == asked


async def test_slow_webhook_does_not_block_other_calls() -> None:
    """Those who wait for it have no seat: there are far more of them than seats."""
    hook, transport = webhook(allow())
    transport.gate.clear()
    async with serving(hook, seats=4) as server:
        waiting = [asyncio.ensure_future(server.create(pod(f"p{number}").new())) for number in range(40)]
        await eventually(lambda: len(transport.items) == len(waiting))
        node = Node(metadata=ObjectMeta(name="n"))
        assert Node.FromString(await server.call("Nodes/Create", object=node)).metadata.name == "n"
        transport.gate.set()
        assert len({created.metadata.uid for created in await asyncio.gather(*waiting)}) == len(waiting)


@pytest.mark.parametrize("ignore", [True, False])
async def test_user_cannot_fill_the_queue_for_others(monkeypatch: pytest.MonkeyPatch, ignore: bool) -> None:
    """That our own queue is full is no failure of the webhook: nothing gets past it, and nobody else is refused for it."""
    monkeypatch.setattr("pinnace.apiserver.webhooks.webhook.MAX_WAITING", 10)
    meter = FakeMeter()
    hook, transport = webhook(allow(), meter=meter, ignore_failures=ignore)
    transport.gate.clear()

    def asks(user: str, times: int) -> list[asyncio.Future[object]]:
        change = WriteAttributes(Request(User(user, ())), Operation.CREATE, PODS, pod().new(), None)
        return [asyncio.ensure_future(hook.call(change)) for _ in range(times)]

    ada, bob = asks("ada", 12), asks("bob", 1)
    await eventually(lambda: len(transport.items) == 9)
    for item in ada[8:]:
        refusal = (await refused(item)).refusal
        assert (refusal.code, refusal.reason, refusal.retry_after) == (Code.UNAVAILABLE, "TooManyRequests", 1)
        assert '8 requests of user "ada" are waiting for admission webhook "a.example.com"' in refusal.message
    assert meter.counted == [("validating", "CREATE", "crowded")] * 4
    transport.gate.set()
    await asyncio.gather(*ada[:8], *bob)
    await asyncio.gather(*asks("ada", 8))


async def test_queue_that_many_have_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinnace.apiserver.webhooks.webhook.MAX_WAITING", 3)
    hook, transport = webhook(allow(), ignore_failures=True)
    transport.gate.clear()
    users = [WriteAttributes(Request(User(name, ())), Operation.CREATE, PODS, pod().new(), None) for name in "abcd"]
    asked = [asyncio.ensure_future(hook.call(user)) for user in users]
    assert "3 requests are waiting for admission webhook" in str(await refused(asked[3]))
    transport.gate.set()
    await asyncio.gather(*asked[:3])


async def test_cancelled_call_does_not_wait_for_webhooks() -> None:
    hook, transport = webhook(allow())
    transport.gate.clear()
    async with serving(hook) as server:
        creating = asyncio.ensure_future(server.create(pod().new()))
        await eventually(lambda: len(transport.items) == 1)
        creating.cancel()
        await asyncio.wait((creating,))
        transport.gate.set()
        assert (await refused(server.get("a"))).refusal.code is Code.NOT_FOUND


async def test_how_it_went_is_counted() -> None:
    meter = FakeMeter()
    judging, _ = webhook(lambda item: (deny() if item.name == "b" else allow())(item), *EVERY, meter=meter)
    async with serving(judging) as server:
        await server.create(pod("a").new())
        await refused(server.create(pod("b").new()))
        await server.call("Pods/Delete", namespace="default", name="a")
    away, transport = webhook(allow(), meter=meter, mutating=True, ignore_failures=True)
    broken, of_broken = webhook(allow(), meter=meter)
    transport.problem = of_broken.problem = "nobody there"
    async with serving(away, broken) as server:
        await refused(server.create(pod("a").new()))
    assert meter.counted == [
        ("validating", "CREATE", "allowed"),
        ("validating", "CREATE", "denied"),
        ("validating", "DELETE", "allowed"),
        ("admit", "CREATE", "ignored"),
        ("validating", "CREATE", "failed"),
    ]
