import os

import psycopg
import pytest
import redis

from fleet.embedded import Urls


@pytest.mark.django_db
def test_the_database_of_the_tests_is_postgres(django_user_model: type) -> None:
    assert django_user_model.objects.count() == 0


def test_redis_is_emptied_for_a_test_that_uses_it(redis_client: redis.Redis) -> None:
    assert redis_client.dbsize() == 0


def test_a_test_may_have_servers_of_its_own(own_urls: Urls) -> None:
    with psycopg.connect(own_urls.database) as connection:
        assert connection.execute("SELECT count(*) FROM django_migrations").fetchone() != (0,)
    with redis.Redis.from_url(own_urls.redis) as client:
        assert client.ping()
    assert own_urls.database != os.environ["DATABASE_URL"]
    assert own_urls.redis != os.environ["REDIS_URL"]
