"""Lines that wait, in order, until their values have come back from a device."""

import collections

from .fingerprint import Prints


class Later(object):
    """A queue of lines; `fields(values)` of each is called once its kept values are there."""

    def __init__(self):
        self.queue = collections.deque()

    def add(self, kind, kept, fields):
        self.queue.append((kind, list(kept), fields))

    def kept(self):
        """Every kept value that may still be under way."""
        return [one for _, kept, _ in self.queue for one in kept]

    def ready(self, values):
        """Take out and yield (kind, fields) of the lines at the front whose values have come."""
        while self.queue:
            kind, kept, fields = self.queue[0]
            if not values.have(kept):
                return
            self.queue.popleft()
            yield kind, fields(values)


def keep_together(recorder, later, kind, fields, tensors):
    """Add a line with the fingerprint of some tensors as one."""
    prints = Prints(enumerate(tensors), recorder.values, recorder.patterns)

    def line(values):
        norm, projection = prints.together(values)
        return dict(fields, norm=norm, projection=projection)

    later.add(kind, prints.kept(), line)
