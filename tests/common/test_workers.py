"""Workers: who computes what, in which order, with how many threads, and what is left."""

import multiprocessing
import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest
import torch

from xcebra.common import workers as module
from xcebra.common.workers import Workers, one_thread, shares

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 2, 3])
def n_threads(request):
    """Number of threads that torch has, as a user sets it."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture
def _three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def names_of_threads():
    return [thread.name for thread in threading.enumerate() if "xcebra-worker" in thread.name]


def identities(workers):
    """The thread of the leader, and those of all parts."""
    return workers.lead(
        lambda: (threading.get_ident(), workers.divide(lambda k: threading.get_ident()))
    )


# How many


@pytest.mark.parametrize("most", [1, 2, 5])
def test_there_are_as_many_as_allowed_and_as_torch_has_threads(n_threads, most):
    with Workers(most, CPU) as workers:
        assert workers.n == min(most, n_threads)
        assert workers.lead(workers.divide, lambda k: k) == list(range(workers.n))
    assert workers.n == 1


@pytest.mark.parametrize("most", [0, -3])
def test_there_is_at_least_one(n_threads, most):
    with Workers(most, CPU) as workers:
        assert workers.n == 1
        assert workers.lead(workers.divide, lambda k: k) == [0]


@pytest.mark.parametrize("device", ["meta", "cuda", "mps", "xpu"])
def test_on_other_devices_the_caller_works_alone(n_threads, device):
    before = threading.active_count()
    with Workers(5, torch.device(device)) as workers:
        assert workers.n == 1
        assert threading.active_count() == before
        assert identities(workers) == (threading.get_ident(), [threading.get_ident()])


def test_workers_that_were_not_started_are_the_caller(n_threads):
    workers = Workers(5, CPU)
    assert workers.n == 1
    assert identities(workers) == (threading.get_ident(), [threading.get_ident()])


# Threads


def test_each_worker_is_one_thread_and_the_first_one_leads(n_threads):
    with Workers(n_threads, CPU) as workers:
        leader, parts = identities(workers)
        assert len(set(parts)) == n_threads
        assert parts[0] == leader
        assert (leader == threading.get_ident()) == (n_threads == 1)
        assert all(identities(workers) == (leader, parts) for _ in range(20))


def test_torch_has_one_thread_in_each_worker_and_the_caller_keeps_its_own(n_threads):
    with Workers(n_threads, CPU) as workers:
        assert torch.get_num_threads() == n_threads
        inside = workers.lead(workers.divide, lambda k: torch.get_num_threads())
        assert inside == [1] * n_threads
        assert torch.get_num_threads() == n_threads
    assert torch.get_num_threads() == n_threads


def test_other_threads_that_start_later_have_the_number_of_the_caller(n_threads):
    """A new thread takes over the value that was set last, which must be the caller's."""
    with Workers(n_threads, CPU) as workers:
        numbers = []

        def work():
            # Torch reads the number when it first computes in a thread.
            torch.ones(100_000).sum()
            numbers.append(torch.get_num_threads())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert numbers == [n_threads]
        assert workers.lead(torch.get_num_threads) == 1


def test_a_large_product_in_a_worker_starts_no_further_threads(n_threads):
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("threads are counted with Linux's list of them")
    x = torch.randn(600, 600)
    with Workers(n_threads, CPU) as workers:

        def count(k):
            (x @ x).tanh().sum()
            return k

        workers.lead(workers.divide, count)
        before = len(os.listdir("/proc/self/task"))
        workers.lead(workers.divide, count)
        assert len(os.listdir("/proc/self/task")) == before


def test_all_threads_end(n_threads):
    before = threading.active_count()
    for _ in range(5):
        with Workers(n_threads, CPU) as workers:
            workers.lead(workers.divide, lambda k: k)
            assert len(names_of_threads()) == (n_threads if n_threads > 1 else 0)
        assert not names_of_threads()
        assert threading.active_count() == before


def test_all_threads_end_after_an_error(n_threads):
    before = threading.active_count()
    with pytest.raises(ValueError, match="outside"), Workers(n_threads, CPU):
        raise ValueError("outside")
    assert threading.active_count() == before


@pytest.mark.usefixtures("_three_threads")
def test_workers_inside_a_worker_are_that_worker():
    """Otherwise there would be more threads than torch has."""

    def lead_others():
        with Workers(3, CPU) as inner:
            return inner.n, identities(inner), threading.get_ident()

    with Workers(3, CPU) as workers:
        for n, (leader, parts), own in workers.lead(workers.divide, lambda k: lead_others()):
            assert (n, leader, parts) == (1, own, [own])


@pytest.mark.usefixtures("_three_threads")
def test_several_sets_of_workers_start_side_by_side():
    """Fits in several threads: every worker has one thread, and every caller keeps its three."""
    start = threading.Barrier(4)
    inside, outside = [], []

    def fit():
        torch.set_num_threads(3)
        start.wait()
        for _ in range(10):
            with Workers(3, CPU) as workers:
                inside.extend(workers.lead(workers.divide, lambda k: torch.get_num_threads()))
            outside.append(torch.get_num_threads())

    callers = [threading.Thread(target=fit) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert inside == [1] * 120
    assert outside == [3] * 40


# Results


@pytest.mark.usefixtures("_three_threads")
@pytest.mark.parametrize("slowest", [0, 1, 2])
def test_results_come_in_the_order_of_the_parts(slowest):
    ended = []

    def part(k):
        if k == slowest:
            time.sleep(0.05)
        ended.append(k)
        return f"part {k}"

    with Workers(3, CPU) as workers:
        assert workers.lead(workers.divide, part) == ["part 0", "part 1", "part 2"]
    assert ended[-1] == slowest


@pytest.mark.usefixtures("_three_threads")
def test_parts_run_at_the_same_time():
    """Every part waits until all parts have begun."""
    all_begun = threading.Barrier(3, timeout=30)
    with Workers(3, CPU) as workers:
        positions = workers.lead(workers.divide, lambda k: all_begun.wait())
    assert sorted(positions) == [0, 1, 2]


def test_arguments_are_passed_on(n_threads):
    with Workers(3, CPU) as workers:
        assert workers.lead(lambda *args, **kwargs: (args, kwargs), 1, 2, a=3) == ((1, 2), {"a": 3})


def test_sums_over_parts_are_the_sum_to_rounding_and_the_same_bits_again(n_threads):
    x = torch.randn(10_001, 7, generator=torch.Generator().manual_seed(0))

    def total():
        with Workers(3, CPU) as workers:
            parts = shares(len(x), workers.n)
            sums = workers.lead(workers.divide, lambda k: x[parts[k]].sum(dim=0))
            return torch.stack(sums).sum(dim=0)

    assert torch.allclose(total().double(), x.double().sum(dim=0), rtol=0, atol=1e-3)
    assert torch.equal(total(), total())


# Errors


@pytest.mark.usefixtures("_three_threads")
@pytest.mark.parametrize("failing", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_an_error_in_a_part_is_raised_after_all_parts_have_ended(failing):
    ended = []

    def part(k):
        if k in failing:
            raise ValueError(f"part {k}")
        time.sleep(0.05)
        ended.append(k)

    def lead():
        try:
            workers.divide(part)
        finally:
            at_the_error.append(sorted(ended))

    at_the_error = []
    with Workers(3, CPU) as workers:
        with pytest.raises(ValueError, match=f"part {failing[0]}"):
            workers.lead(lead)
        assert at_the_error == [sorted({0, 1, 2} - set(failing))]
        # They go on working.
        assert workers.lead(workers.divide, lambda k: k) == [0, 1, 2]


def test_an_error_of_the_leader_is_raised_in_the_caller(n_threads):
    with Workers(3, CPU) as workers, pytest.raises(ZeroDivisionError):
        workers.lead(lambda: 1 / 0)


@pytest.mark.usefixtures("_three_threads")
@pytest.mark.parametrize("failing", [0, 1])
def test_errors_that_are_no_exceptions_are_raised_too(failing):
    def part(k):
        if k == failing:
            raise SystemExit(3)

    with Workers(3, CPU) as workers, pytest.raises(SystemExit, match="3"):
        workers.lead(workers.divide, part)


@pytest.mark.usefixtures("_three_threads")
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of POSIX")
def test_ctrl_c_is_raised_in_the_caller_and_the_parts_end_before_it_goes_on():
    ended = []

    def part(k):
        if k == 0:
            time.sleep(0.05)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.2)
        ended.append(k)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), Workers(3, CPU) as workers:
            workers.lead(workers.divide, part)
    finally:
        signal.signal(signal.SIGINT, before)
    assert sorted(ended) == [0, 1, 2]
    assert not names_of_threads()


# Forks


def _work(results):
    with Workers(3, CPU) as workers:
        results.put((workers.n, workers.lead(workers.divide, lambda k: k)))


def in_a_fork():
    """What a forked process gets from workers of its own."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    with warnings.catch_warnings():
        # Python 3.12 and later warn if a process with several threads forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=_work, args=(results,))
        process.start()
    process.join(30)
    if process.is_alive():
        process.kill()
        process.join()
        pytest.fail("the forked process did not end")
    assert process.exitcode == 0
    return results.get()


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks on Windows")


@forks
@pytest.mark.usefixtures("_three_threads")
def test_a_forked_process_has_workers_of_its_own():
    """After workers were used, and while they are used: threads are not copied by a fork."""
    with Workers(3, CPU) as workers:
        workers.lead(workers.divide, lambda k: k)
        assert in_a_fork() == (3, [0, 1, 2])
        assert workers.lead(workers.divide, lambda k: k) == [0, 1, 2]
    assert in_a_fork() == (3, [0, 1, 2])


@forks
@pytest.mark.usefixtures("_three_threads")
def test_a_process_that_is_forked_while_another_thread_starts_workers():
    """The other thread is not there to release what it holds."""
    with module._starting:
        assert in_a_fork() == (3, [0, 1, 2])


# Shares


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 1023, 5000])
@pytest.mark.parametrize("n_parts", [1, 2, 3, 7])
def test_shares_follow_one_another_and_differ_by_at_most_one_row(n, n_parts):
    parts = shares(n, n_parts)
    assert len(parts) == n_parts
    assert np.array_equal(np.concatenate([np.arange(n)[part] for part in parts]), np.arange(n))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_results_of_a_map_have_the_order_of_the_items():
    with Workers(3, torch.device("cpu")) as workers:
        assert workers.map(lambda item: item * item, range(20)) == [i * i for i in range(20)]
        assert workers.map(lambda item: item, []) == []


def test_an_error_in_a_map_is_raised():
    def fail(item):
        if item == 3:
            raise ValueError("three")

    with Workers(2, torch.device("cpu")) as workers, pytest.raises(ValueError, match="three"):
        workers.map(fail, range(6))


def test_one_thread_is_given_back_and_workers_know_how_many_there_were():
    import threadpoolctl

    def blas():
        return {
            lib["num_threads"]
            for lib in threadpoolctl.threadpool_info()
            if lib["user_api"] == "blas"
        }

    before, torch_before = blas(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
            assert blas() == {1}
            with Workers(8, torch.device("cpu")) as workers:
                assert workers.n == 2
                assert workers.map(lambda _: torch.get_num_threads(), range(4)) == [1] * 4
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        assert blas() == before
        with pytest.raises(ZeroDivisionError), one_thread():
            _ = 1 / 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(torch_before)
