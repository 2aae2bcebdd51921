from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from tidemill.records.stream_records import lazy


class Counting:
    computed = 0

    @lazy
    def value(self):
        self.computed += 1
        return object()


def test_a_value_is_computed_once_and_on_demand():
    counting = Counting()
    assert counting.computed == 0
    assert counting.value is counting.value
    assert counting.computed == 1


def test_threads_compute_the_values_of_two_instances_at_the_same_time():
    both = Barrier(2)

    class Meeting:
        @lazy
        def value(self):
            both.wait(timeout=10)  # breaks unless another thread is here, too
            return True

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda meeting: meeting.value, [Meeting(), Meeting()])) == [True, True]
