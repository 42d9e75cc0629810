"""What happens on another device than the CPU, shown without one.

There is no GPU here. Its place is taken by tensors of the ``meta`` device that have values: each of
them holds a tensor of the CPU, on which every operation is computed (`Elsewhere`). For the package
they are tensors of another device, so that it takes the paths that it takes on a GPU. What a GPU
refuses is refused: operations on tensors of two devices, and numpy arrays of its tensors. What
makes Python wait for a GPU is counted: values that are read, copies to the CPU, and results whose
shape depends on values.

This proves which tensors are made where, and which calls wait, because both follow from the calls
of torch that are made and not from what computes them. It does not prove that all operations exist
on a certain device, that their rounding is harmless there, or how fast they are. A user with a GPU
can measure this with ``python benchmarks/device.py --device cuda``.
"""

import math
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

from xcebra import XCEBRA, Recording
from xcebra.common.choices import METHODS
from xcebra.common.workers import Workers
from xcebra.training import loop
from xcebra.training.batches import Batches
from xcebra.training.joint_plan import make_joint_plan
from xcebra.training.settings import RECIPES

# The recordings are short, which is told.
pytestmark = pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")

aten = torch.ops.aten
META, CPU = torch.device("meta"), torch.device("cpu")


class Elsewhere(torch.Tensor):
    """A tensor of the ``meta`` device that holds its values, in ``values`` on the CPU."""

    @staticmethod
    def __new__(cls, values):
        wrapped = torch.Tensor._make_wrapper_subclass(
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            layout=values.layout,
            device=META,
        )
        wrapped.values_here = values
        return wrapped

    def __repr__(self, *, tensor_contents=None):
        return f"Elsewhere({self.values_here})"

    def __deepcopy__(self, memo):
        copied = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, requires_grad=self.requires_grad)
        return memo.setdefault(id(self), copied)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


def compute(func, args, kwargs):
    """Compute an operation on the values, and return its results on the device they belong to."""
    tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
    is_elsewhere = any(isinstance(t, Elsewhere) for t in tensors)
    copies = func in (aten._to_copy.default, aten.copy_.default)
    # As on a GPU, single numbers of the CPU may take part.
    on_cpu = [t for t in tensors if not isinstance(t, Elsewhere) and t.ndim]
    if is_elsewhere and on_cpu and not copies:
        raise RuntimeError(f"{func} on tensors of the CPU and of another device")
    device = torch.device(kwargs.get("device") or (META if is_elsewhere else CPU))
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": CPU}
    inner = tree_map(lambda t: t.values_here if isinstance(t, Elsewhere) else t, (args, kwargs))
    result = func(*inner[0], **inner[1])
    if func is aten.copy_.default:
        return args[0]
    if device.type != "meta":
        return result
    result = tree_map(lambda t: Elsewhere(t) if type(t) is torch.Tensor else t, result)
    return return_and_correct_aliasing(func, args, kwargs, result) if is_elsewhere else result


class OtherDevice(TorchDispatchMode):
    """While it is active, ``device="meta"`` makes tensors with values, and calls are recorded.

    ``waits`` counts the calls that wait for the device, ``on_cpu`` those that make a tensor on
    the CPU that is larger than one number, and ``elsewhere`` those that make one on the device.
    """

    def __init__(self):
        super().__init__()
        self.clear()

    def clear(self):
        self.waits, self.on_cpu, self.elsewhere = Counter(), Counter(), Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = compute(func, args, kwargs)
        if waits(func, args, kwargs, result):
            self.waits[str(func)] += 1
        for tensor in tree_flatten(result)[0]:
            if isinstance(tensor, Elsewhere):
                self.elsewhere[str(func)] += 1
            elif isinstance(tensor, torch.Tensor) and tensor.nbytes > 8:
                self.on_cpu[str(func)] += 1
        return result


def waits(func, args, kwargs, result):
    """Whether a call has to wait until the device has computed its arguments."""
    flat = tree_flatten((args, kwargs))[0]
    if not any(isinstance(t, Elsewhere) for t in flat):
        return False
    results = tree_flatten(result)[0]
    if any(not isinstance(r, Elsewhere) and r is not None for r in results):
        return True  # a number, or a tensor of the CPU
    if func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
        return any(t.dtype in (torch.bool, torch.uint8) for t in args[1] if t is not None)
    return torch.Tag.dynamic_output_shape in func.tags


@pytest.fixture
def device():
    with OtherDevice() as mode:
        yield mode


def recordings(n=1, situation="default"):
    """Recordings of neurons that follow an angle, whose cosine is the label, and a hidden one."""
    rng = np.random.default_rng(0)
    recs = {}
    for session in range(n):
        n_times, n_neurons = 400, 6 + session
        angle = np.cumsum(0.15 * rng.standard_normal(n_times))
        hidden = np.cumsum(0.2 * rng.standard_normal(n_times))
        mixed = np.stack([np.cos(angle), np.sin(angle), np.tanh(hidden)], axis=1)
        neural = mixed @ rng.standard_normal((3, n_neurons))
        label = np.cos(angle) if situation != "classes" else (np.cos(angle) > 0).astype(int)
        neural += 0.1 * rng.standard_normal(neural.shape)
        recs[f"day {session}"] = Recording(neural.astype(np.float32), {"x": label})
    return recs


SITUATIONS = {
    "default": {},
    "cosine": {"distance": "cosine"},
    "paper": {"recipe": "paper", "label_dims": 1},
    "window": {"window": 3},
    "search for the weight": {"jacobian_weight": "auto"},
    "regression": {"objective": "regression", "time_dims": 0},
    "classes": {},
}


def settings_of(situation):
    common = {"time_dims": 2, "steps": 24, "batch_size": 64, "random_state": 0}
    return common | SITUATIONS[situation]


def steps_on(where, n_sessions=1, situation="default", n_steps=12):
    """A function that takes steps of training on a device, and the state of training."""
    recs = recordings(n_sessions, situation)
    params = XCEBRA(**settings_of(situation)).get_params()
    plan = make_joint_plan(recs, params)
    config = replace(plan.decisions.train, steps=n_steps)
    encoders = plan.make_encoders(where)
    objectives = plan.objectives()
    batches = Batches(plan.samples(encoders, recs), objectives, where)
    state, workers = loop.new_state(encoders, config), Workers(1, where)

    def step(number):
        record = loop.take_step(state, batches, objectives, config, number, workers)
        state.unread.append((number, record))

    return step, state, config, encoders


# The stand-in for a GPU does what it is meant to do


def test_a_tensor_elsewhere_has_values_and_gradients(device):
    x = torch.arange(6.0).reshape(2, 3).to("meta").requires_grad_()
    y = (x * torch.full((3,), 2.0, device="meta")).square().sum()
    y.backward()
    assert x.device == x.grad.device == y.device == META
    assert x.grad.cpu().tolist() == [[0, 8, 16], [24, 32, 40]]
    z = torch.zeros(3, device="meta")
    z[1:] += 5
    assert z.cpu().tolist() == [0, 5, 5]


def test_tensors_of_two_devices_are_refused(device):
    x = torch.ones(3, device="meta")
    for refused in (lambda: x + torch.ones(3), lambda: x[torch.tensor([0, 1])], x.numpy):
        with pytest.raises((RuntimeError, TypeError), match=r"device|subclasses"):
            refused()
    assert (x + torch.tensor(2.0)).cpu().tolist() == [3, 3, 3]


WAITING = {
    "float": lambda x: float(x[0]),
    "item": lambda x: x[0].item(),
    "bool": lambda x: bool((x > 0).all()),
    "if": lambda x: 1 if x[0] > 0 else 2,
    "cpu": lambda x: x.cpu(),
    "copied into a tensor of the CPU": lambda x: torch.zeros(3).copy_(x),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "assigned by a mask": lambda x: x.__setitem__(x > 0, torch.ones(3, device="meta")),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x),
    "isfinite": lambda x: math.isfinite(x[0]),
}


@pytest.mark.parametrize("call", WAITING.values(), ids=WAITING.keys())
def test_calls_that_wait_are_counted(device, call):
    x = torch.ones(3, device="meta")
    device.clear()
    call(x)
    assert device.waits.total() >= 1


def test_calls_that_do_not_wait_are_not_counted(device):
    x = torch.ones(3, device="meta", requires_grad=True)
    index = torch.tensor([0, 2]).to("meta")
    device.clear()
    y = torch.where(x > 0, x, 0.0)[index] + torch.eye(2, device="meta")
    y.sum().backward()
    x.detach()[1:].zero_()
    assert not device.waits


# A training step


@pytest.mark.parametrize(
    ("situation", "n_sessions"),
    [(name, n) for name in SITUATIONS for n in ((1,) if name == "regression" else (1, 2))],
)
def test_a_step_waits_for_nothing_and_makes_no_tensor_on_the_cpu(device, situation, n_sessions):
    """From the draw of the batch to the new weights, before, during and after the warm-up."""
    step, state, config, encoders = steps_on(META, n_sessions, situation)
    for number in range(config.steps):
        # The penalty is zero at first. The search for its weight needs the losses of each step.
        if loop._losses_are_due(number - 1, config, META):
            loop.read_losses(state, config)
        device.clear()
        step(number)
        assert not device.waits, number
        # Indices that were drawn are copied to the device, but nothing is computed on the CPU.
        assert set(device.on_cpu) <= {"aten.lift_fresh.default", "aten.empty.memory_format"}
        assert device.elsewhere.total() > 100
    for encoder in encoders:
        for parameter in encoder.parameters():
            assert {parameter.device, parameter.grad.device} == {META}
    losses = [v for _, record in state.unread for k, v in record.items() if k.startswith("loss/")]
    assert losses
    assert {loss.device for loss in losses} == {META}


@pytest.mark.parametrize(
    ("situation", "n_sessions"),
    [(name, n) for name in SITUATIONS for n in ((1,) if name == "regression" else (1, 2))],
)
def test_steps_elsewhere_give_the_losses_of_steps_here(device, situation, n_sessions):
    """The other device takes other paths: tiles in place of the compiled loss, other GELUs."""
    histories = []
    for where in (CPU, META):
        step, state, config, _ = steps_on(where, n_sessions, situation)
        for number in range(config.steps):
            step(number)
            loop.read_losses(state, config)
        histories.append(state.history.arrays())
    here, elsewhere = histories
    assert list(here) == list(elsewhere)
    for name, values in here.items():
        # Differences between losses of twins are small numbers with the rounding of large ones.
        np.testing.assert_allclose(elsewhere[name], values, rtol=1e-3, atol=1e-4, err_msg=name)


# Reading losses


def test_losses_of_several_steps_are_read_in_one_transfer(device):
    step, state, config, _ = steps_on(META)
    for number in range(10):
        step(number)
    device.clear()
    loop.read_losses(state, config)
    assert device.waits.total() == 1
    assert not state.unread
    assert {len(values) for values in state.history.rows.values()} == {10}
    assert all(type(v) is float for values in state.history.rows.values() for v in values)


@pytest.mark.parametrize("together", [1, 5, 12])
@pytest.mark.parametrize("situation", ["default", "paper"])
def test_the_history_does_not_depend_on_when_it_is_read(together, situation):
    """To the bit."""
    histories = []
    for every in (1, together):
        step, state, config, _ = steps_on(CPU, situation=situation)
        for number in range(config.steps):
            step(number)
            if (number + 1) % every == 0:
                loop.read_losses(state, config)
        loop.read_losses(state, config)
        histories.append(state.history.arrays())
    first, second = histories
    assert list(first) == list(second)
    for name, values in first.items():
        assert np.array_equal(values, second[name], equal_nan=True), name


def test_an_infinite_loss_is_noticed_with_the_number_of_its_step(device):
    """Some steps later, and before a checkpoint is written or the fit ends."""
    step, state, config, _ = steps_on(META)
    for number in range(6):
        step(number)
    state.unread[3][1]["total"] = torch.full((), math.inf, device="meta")
    state.unread[4][1]["total"] = torch.full((), math.nan, device="meta")
    with pytest.raises(FloatingPointError, match=r"the loss became inf at step 3 with"):
        loop.read_losses(state, config)


def reads_of_fit(device, monkeypatch, tmp_path=None, callback=None, **settings):
    """Numbers of unread steps whenever losses are read in a fit of the encoder."""
    reads, read = [], loop.read_losses

    def counted(state, config):
        reads.append(len(state.unread))
        read(state, config)

    monkeypatch.setattr(loop, "read_losses", counted)
    recs = recordings()
    params = XCEBRA(**settings_of("default") | settings).get_params()
    plan = make_joint_plan(recs, params)
    encoders = plan.make_encoders(META)
    device.clear()
    history = loop.train(
        encoders,
        plan.samples(encoders, recs),
        plan.objectives(),
        plan.decisions.train,
        device=META,
        checkpoint=tmp_path and tmp_path / "checkpoint",
        callback=callback,
    )
    return reads, history


def test_a_fit_waits_every_ten_steps(device, monkeypatch):
    reads, history = reads_of_fit(device, monkeypatch, steps=34)
    assert reads == [10, 10, 10, 4]
    assert device.waits.total() == 4
    assert {len(values) for values in history.values()} == {34}


def test_a_callback_does_not_make_it_wait(device, monkeypatch):
    counts = []
    reads, _ = reads_of_fit(device, monkeypatch, steps=24, callback=counts.append)
    assert reads == [10, 10, 4]
    assert counts == list(range(1, 25))


# Torch expects tensors of this device to have no values.
@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta:UserWarning")
def test_losses_are_read_before_a_checkpoint_is_written(device, monkeypatch, tmp_path):
    """Otherwise a resumed fit would have no history of them."""
    monkeypatch.setattr(loop, "_CHECKPOINT_SECONDS", -1.0)
    reads, history = reads_of_fit(device, monkeypatch, tmp_path, steps=12)
    # Every step for its checkpoint, and step 10 by itself.
    assert sum(reads) == 12
    assert max(reads) == 1
    resumed = reads_of_fit(device, monkeypatch, tmp_path, steps=12)[1]
    for name, values in history.items():
        assert np.array_equal(values, resumed[name], equal_nan=True), name


def test_while_the_weight_is_searched_for_every_step_is_read(device, monkeypatch):
    """It depends on the losses so far. Before and after, ten steps are read together."""
    reads, history = reads_of_fit(device, monkeypatch, steps=80, jacobian_weight="auto")
    # Steps 10 to 29 search, and step 30 has the final weight.
    assert reads == [10] + [1] * 21 + [9, 10, 10, 10, 10, 0]
    assert {len(values) for values in history.values()} == {80}
    assert len(set(history["weight"][30:])) == 1


def test_on_the_cpu_every_step_is_read():
    config = steps_on(CPU)[2]
    assert all(loop._losses_are_due(step, config, CPU) for step in range(20))


# Whole fits and maps


@contextmanager
def short_decoders():
    with pytest.MonkeyPatch.context() as patch:
        for name, recipe in RECIPES.items():
            patch.setitem(RECIPES, name, replace(recipe, decoder_steps=30))
        yield


SETTINGS = {"time_dims": 2, "steps": 40, "batch_size": 64, "random_state": 0}


@pytest.fixture(scope="module")
def fits():
    """The same fit here and elsewhere. Nothing raised an error, so that no devices were mixed."""
    rec = recordings()["day 0"]
    with short_decoders(), OtherDevice():
        models = [
            XCEBRA(**SETTINGS, device=name).fit(rec.neural, {"x": rec.labels["x"]})
            for name in ("cpu", "meta")
        ]
    return rec, *models


def test_all_networks_of_a_fit_lie_on_its_device(fits):
    _, _, elsewhere = fits
    networks = [v for v in vars(elsewhere).values() if isinstance(v, torch.nn.Module)]
    assert len(networks) >= 3
    for network in networks:
        tensors = [*network.parameters(), *network.buffers()]
        assert {type(t) for t in tensors} == {Elsewhere} or not tensors
        assert {t.device for t in tensors} <= {META}


def test_a_fit_elsewhere_is_the_fit_here(fits):
    """Losses and embedding, to the rounding of forty steps in single precision."""
    rec, here, elsewhere = fits
    assert list(here.history_) == list(elsewhere.history_)
    for name, values in here.history_.items():
        np.testing.assert_allclose(
            elsewhere.history_[name], values, rtol=2e-3, atol=1e-4, err_msg=name
        )
    embedding = here.transform(rec.neural)
    with OtherDevice():
        other = elsewhere.transform(rec.neural)
    np.testing.assert_allclose(other, embedding, rtol=0, atol=5e-3 * np.abs(embedding).max())


@pytest.mark.parametrize("method", METHODS)
def test_a_map_elsewhere_is_the_map_here(fits, method):
    """Also in its label axes or its sparse basis, if these are the default."""
    rec, here, elsewhere = fits
    expected = here.attribute(rec, method=method)
    with OtherDevice() as device:
        result = elsewhere.attribute(rec, method=method)
    assert device.elsewhere.total() > 50
    scale = np.abs(expected.values).max()
    np.testing.assert_allclose(result.values, expected.values, rtol=0, atol=0.02 * scale)


def test_scores_and_predictions_elsewhere_are_those_here(fits):
    rec, here, elsewhere = fits
    embedding = here.transform(rec.neural)
    expected = here.score(rec), here.inverse_transform(embedding)
    with OtherDevice():
        results = elsewhere.score(rec), elsewhere.inverse_transform(embedding)
    assert results[0] == pytest.approx(expected[0], rel=0.02, abs=0.01)
    scale = np.abs(expected[1]).max()
    np.testing.assert_allclose(results[1], expected[1], rtol=0, atol=0.02 * scale)
    for name, share in here.variance_explained_.items():
        np.testing.assert_allclose(elsewhere.variance_explained_[name], share, rtol=0, atol=0.02)


def test_a_model_is_saved_from_one_device_and_loaded_to_the_other(fits, tmp_path):
    """The file does not depend on the device, and holds the same bits."""
    rec, _, elsewhere = fits
    with OtherDevice():
        elsewhere.save(tmp_path / "model")
        embedding = elsewhere.transform(rec.neural)
    loaded = XCEBRA.load(tmp_path / "model")
    assert np.allclose(loaded.transform(rec.neural), embedding, rtol=0, atol=1e-5)
    for name, value in loaded.encoder_.state_dict().items():
        with OtherDevice():
            assert torch.equal(value, elsewhere.encoder_.state_dict()[name].cpu())


def test_a_step_of_the_decoders_waits_for_nothing(device, monkeypatch):
    """They wait only for the errors on samples that decide when to stop, every hundred steps."""
    waits_by_steps = {}
    rec = recordings()["day 0"]
    for steps in (20, 40):
        with pytest.MonkeyPatch.context() as patch:
            for name, recipe in RECIPES.items():
                patch.setitem(RECIPES, name, replace(recipe, decoder_steps=steps))
            device.clear()
            XCEBRA(**SETTINGS | {"steps": 2}, device="meta").fit(rec.neural, {"x": rec.labels["x"]})
        waits_by_steps[steps] = device.waits
    assert waits_by_steps[20] == waits_by_steps[40]
    assert waits_by_steps[20].total() > 0
