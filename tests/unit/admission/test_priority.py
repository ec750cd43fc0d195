"""The priority of a pod that names no class: that of the default class of now, of which there is one."""

from collections.abc import Callable

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import PODS, PRIORITY_CLASSES
from pinnace.api.scheduling_v1_pb2 import PriorityClass, PriorityClassList
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import DeleteRequest, ListRequest
from pinnace.apiserver.admission.defaults import Priority
from pinnace.apiserver.auth.authentication import UNSECURED
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest
from pinnace.apiserver.registry.strategies.policy import SYSTEM_CLASSES
from pinnace.apiserver.storage.interface import ChangeBatch, KeyChange, KeyValue
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import serving
from tests.unit.registry.test_creating import asked, call


def encoded(value: int, *, default: bool = True) -> bytes:
    return PriorityClass(value=value, globalDefault=default).SerializeToString()


def named(name: str, *, default: bool) -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name=name), value=10, globalDefault=default, preemptionPolicy="Never")


def change(revision: int, name: str, value: bytes | None) -> ChangeBatch:
    return ChangeBatch(revision, [KeyChange(PRIORITY_CLASSES.key("", name), value, revision, revision)])


PLAIN = named("plain", default=False)


def refused(plugin: Priority, pod: Pod) -> str:
    """Why it is forbidden, as in Kubernetes: the pod is as it should be, and the class is not."""
    with pytest.raises(Rejected) as caught:
        plugin.admit(WriteRequest(UNSECURED), pod)
    assert (caught.value.refusal.code, caught.value.refusal.reason) == (Code.PERMISSION_DENIED, "Forbidden")
    return caught.value.refusal.message.removeprefix('pods "a" is forbidden: ')


@pytest.fixture
def cacher() -> Cacher:
    cacher = Cacher(MemoryStorage())
    cacher.install_state(5, [])
    return cacher


@pytest.fixture
def priority(cacher: Cacher) -> Callable[[], int]:
    """The priority that a new pod gets now."""
    plugin = Priority(cacher.cache_of(PRIORITY_CLASSES))

    def of_a_new_pod() -> int:
        pod: Pod = make_pod("a").new()
        plugin.admit(PODS, pod)
        return pod.spec.priority

    return of_a_new_pod


def test_default_class_is_that_of_now(cacher: Cacher, priority: Callable[[], int]) -> None:
    assert priority() == 0
    cacher.apply_changes(change(6, "a", encoded(70)))
    assert [priority(), priority()] == [70, 70]
    cacher.apply_changes(change(7, "a", encoded(80)))
    assert priority() == 80
    cacher.apply_changes(change(8, "a", encoded(80, default=False)))
    assert priority() == 0
    cacher.apply_changes(change(9, "a", encoded(90)))
    cacher.apply_changes(change(10, "a", None))
    assert priority() == 0


def test_lowest_of_several_default_classes_applies(cacher: Cacher, priority: Callable[[], int]) -> None:
    for revision, value in enumerate((70, 60, 80), 6):
        cacher.apply_changes(change(revision, f"of-{value}", encoded(value)))
    assert priority() == 60


def test_store_that_was_restored_may_say_something_else_at_the_same_revision(
    cacher: Cacher, priority: Callable[[], int]
) -> None:
    cacher.apply_changes(change(6, "a", encoded(70)))
    assert priority() == 70
    cacher.install_state(6, [KeyValue(PRIORITY_CLASSES.key("", "a"), encoded(60), 6, 6, 1)])
    assert priority() == 60


@pytest.mark.parametrize(
    ("name", "before", "after", "allowed"),
    [
        ("b", None, True, False),
        ("b", False, True, False),
        ("b", None, False, True),
        ("b", True, True, True),  # of two that are there already
        ("b", True, False, True),
        ("a", None, True, True),  # that it exists is told by who writes it
        ("a", True, True, True),
    ],
)
def test_second_default_class_is_allowed_only_when_it_was_stored_before(
    cacher: Cacher, name: str, before: bool | None, after: bool, allowed: bool
) -> None:
    cacher.apply_changes(
        ChangeBatch(6, [KeyChange(PRIORITY_CLASSES.key("", "a"), named("a", default=True).SerializeToString(), 6, 6)])
    )
    plugin = Priority(cacher.cache_of(PRIORITY_CLASSES))
    old = None if before is None else named(name, default=before)
    operation = AdmissionOperation.CREATE if old is None else AdmissionOperation.UPDATE
    try:
        plugin.validate(WriteRequest(UNSECURED), operation, named(name, default=after), old)
    except Rejected as rejected:
        assert not allowed
        assert rejected.refusal.message == (
            'priorityclasses "b" is forbidden: PriorityClass a is already marked as default. Only one default can exist'
        )
    else:
        assert allowed


@pytest.mark.parametrize(
    ("name", "said", "computed"),
    [
        ("plain", "PreemptLowerPriority", "Never"),
        ("", "Never", "PreemptLowerPriority"),
        ("system-node-critical", "Never", "PreemptLowerPriority"),
    ],
)
def test_pod_cannot_say_another_policy_than_its_class(cacher: Cacher, name: str, said: str, computed: str) -> None:
    cacher.apply_changes(change(6, "plain", PLAIN.SerializeToString()))
    plugin, pod = Priority(cacher.cache_of(PRIORITY_CLASSES)), make_pod("a").priority_class(name).preemption_policy(said).new()
    assert refused(plugin, pod) == (
        f"the string value of PreemptionPolicy ({said}) must not be provided in pod spec; "
        f"priority admission controller computed {computed} from the given PriorityClass name"
    )


def test_pod_priority_must_match_its_class(cacher: Cacher) -> None:
    cacher.apply_changes(change(6, "plain", PLAIN.SerializeToString()))
    pod = make_pod("a").priority_class("plain").new()
    pod.spec.priority = 7
    assert refused(Priority(cacher.cache_of(PRIORITY_CLASSES)), pod) == (
        "the integer value of priority (7) must not be provided in pod spec; "
        "priority admission controller computed 10 from the given PriorityClass name"
    )


def test_class_that_is_not_there(cacher: Cacher) -> None:
    pod = make_pod("a").priority_class("plain").new()
    assert refused(Priority(cacher.cache_of(PRIORITY_CLASSES)), pod) == "no PriorityClass with name plain was found"


@pytest.mark.parametrize("name", ["plain", ""])
def test_pod_that_was_completed_may_be_looked_at_again(cacher: Cacher, name: str) -> None:
    cacher.apply_changes(change(6, "plain", PLAIN.SerializeToString()))
    plugin, pod = Priority(cacher.cache_of(PRIORITY_CLASSES)), make_pod("a").priority_class(name).new()
    plugin.admit(WriteRequest(UNSECURED), pod)
    again = Pod.FromString(pod.SerializeToString())
    plugin.admit(WriteRequest(UNSECURED), again)
    assert again == pod and pod.spec.preemptionPolicy == ("Never" if name else "PreemptLowerPriority")


async def test_new_default_class_is_accepted_after_the_old_one_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that is behind may still have it."""
    async with serving() as assembly:
        stored = await call(assembly, "PriorityClasses/Create", asked(assembly, "PriorityClasses/Create", PLAIN))
        gone: list[PriorityClass | None] = [named("gone", default=True)]
        monkeypatch.setattr(Priority, "_default_priority_class", lambda self: gone[0])
        catch_up = assembly.cacher.wait_until_fresh

        async def fresh(timeout: float) -> int:
            gone[0] = None
            return await catch_up(timeout)

        monkeypatch.setattr(assembly.cacher, "wait_until_fresh", fresh)
        wanted = PriorityClass.FromString(stored)
        wanted.globalDefault = True
        updated = await call(assembly, "PriorityClasses/Update", asked(assembly, "PriorityClasses/Update", wanted))
        assert PriorityClass.FromString(updated).globalDefault


async def test_second_default_class_is_refused() -> None:
    async with serving() as assembly:
        for name in ("first", "plain"):
            obj = named(name, default=name == "first")
            stored = await call(assembly, "PriorityClasses/Create", asked(assembly, "PriorityClasses/Create", obj))
        await assembly.cacher.wait_until_fresh(5)
        plain = PriorityClass.FromString(stored)
        plain.globalDefault = True
        for method, obj in (("Create", named("second", default=True)), ("Update", plain)):
            with pytest.raises(Rejected, match="PriorityClass first is already marked as default") as caught:
                await call(assembly, f"PriorityClasses/{method}", asked(assembly, f"PriorityClasses/{method}", obj))
            assert caught.value.refusal.code is Code.PERMISSION_DENIED


async def test_classes_of_the_system_are_there_and_stay() -> None:
    async with serving() as assembly:
        result = PriorityClassList.FromString(await call(assembly, "PriorityClasses/List", ListRequest())).items
        assert {item.metadata.name: item.value for item in result} == SYSTEM_CLASSES
        for name in SYSTEM_CLASSES:
            with pytest.raises(Rejected) as caught:
                await call(assembly, "PriorityClasses/Delete", DeleteRequest(name=name))
            assert (caught.value.refusal.reason, caught.value.refusal.message) == (
                "Forbidden",
                f'priorityclasses "{name}" is forbidden: this is a system priority class and cannot be deleted',
            )
        await call(assembly, "PriorityClasses/Create", asked(assembly, "PriorityClasses/Create", PLAIN))
        await call(assembly, "PriorityClasses/Delete", DeleteRequest(name="plain"))
