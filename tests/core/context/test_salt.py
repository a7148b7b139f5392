from homing.core.context.salt import salt


def test_a_salt_is_one_tenants_in_one_pool_under_one_secret():
    one = salt(b"acme", "p", b"secret")
    assert one == salt(b"acme", "p", b"secret")
    assert len({one, salt(b"other", "p", b"secret"), salt(b"acme", "q", b"secret"), salt(b"acme", "p", b"else")}) == 4


def test_vllm_takes_it():
    assert len(salt(b"\xff" * 300, "p", b"secret")) == 32
    assert salt(b"@/\\", "p", b"secret").isalnum()
