"""Which steps are looked at closely: a choice that the job cannot guess without the secret key."""

import hashlib


def close_looks(key, kind, steps):
    """A function from a step's index to whether it is looked at closely.

    Audit runs look at every step. A timed run looks at steps 0 and 1 and at about one in ten of
    the others, at least one and never all, ranked by a hash under `key`; beyond the `steps` that
    were asked for, at about one in sixteen.
    """
    if kind != "timed":
        return lambda index: True

    def rank(index):
        digest = hashlib.blake2b(b"%d" % index, key=key, digest_size=8).digest()
        return int.from_bytes(digest, "big")

    later = sorted(range(2, steps), key=rank)
    count = min(max(1, len(later) // 10), len(later) - 1) if later else 0
    chosen = {0, 1} | set(later[:count])
    return lambda index: index in chosen or (index >= steps and rank(index) % 16 == 0)
