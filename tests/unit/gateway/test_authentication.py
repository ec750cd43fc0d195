"""Bearer tokens at the gateway: an API server reviews them, and the result is cached for a short time."""

import pytest

from pinnace.api.status import Code, Refusal
from pinnace.client.errors import ApiError, Forbidden, Unavailable
from pinnace.gateway.authentication import INVALID_FOR, MAX_TOKEN, VALID_FOR, Authenticator
from pinnace.gateway.http import ANONYMOUS, ApiStatus, User

EVE = User("eve", ("developers", "system:authenticated"))


class Reviewer:
    def __init__(self) -> None:
        self.users = {"s3cret": EVE}
        self.asked: list[str] = []
        self.error: ApiError | None = None

    async def review_token(self, token: str) -> User | None:
        self.asked.append(token)
        if self.error is not None:
            raise self.error
        return self.users.get(token)


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        self.reviewer = Reviewer()
        self.authenticator = Authenticator(self.reviewer, lambda: self.now)

    async def user(self, header: str) -> User:
        return await self.authenticator.user(None, {"authorization": header})

    async def code(self, header: str) -> int:
        with pytest.raises(ApiStatus) as caught:
            await self.user(header)
        return caught.value.code


async def test_request_without_credentials_is_anonymous() -> None:
    assert await World().authenticator.user(None, {}) is ANONYMOUS


async def test_valid_token_is_reviewed_once_until_its_expiry() -> None:
    world = World()
    for header in ("Bearer s3cret", "bearer  s3cret "):
        assert await world.user(header) == EVE
    assert world.reviewer.asked == ["s3cret"]
    world.reviewer.users.clear()
    world.now += VALID_FOR
    assert await world.code("Bearer s3cret") == 401


async def test_unknown_token_is_unauthorized_until_it_becomes_valid() -> None:
    world = World()
    assert [await world.code("Bearer new"), await world.code("Bearer new")] == [401, 401]
    assert world.reviewer.asked == ["new"]
    world.reviewer.users["new"] = EVE
    world.now += INVALID_FOR
    assert await world.user("Bearer new") == EVE


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic czNjcmV0", "s3cret", f"Bearer {'x' * (MAX_TOKEN + 1)}"])
async def test_other_headers_are_unauthorized_without_a_review(header: str) -> None:
    world = World()
    assert await world.code(header) == 401 and world.reviewer.asked == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unavailable(Refusal(Code.UNAVAILABLE, "Unavailable", "no server answers")), 503),
        (Forbidden(Refusal(Code.PERMISSION_DENIED, "Forbidden", "no")), 401),
    ],
)
async def test_failed_review_is_not_cached(error: ApiError, code: int) -> None:
    world = World()
    world.reviewer.error = error
    assert await world.code("Bearer s3cret") == code
    world.reviewer.error = None
    assert await world.user("Bearer s3cret") == EVE


async def test_number_of_cached_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinnace.gateway.authentication.MAX_REMEMBERED", 2)
    world = World()
    for token in ("s3cret", "a", "b"):
        world.reviewer.users[token] = EVE
        await world.user(f"Bearer {token}")
    await world.user("Bearer b")
    await world.user("Bearer s3cret")
    assert world.reviewer.asked == ["s3cret", "a", "b", "s3cret"]
