"""Batches of several sessions: every row is followed from its sample to the loss."""

import copy
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import xcebra
from xcebra import XCEBRA, Recording
from xcebra.common.workers import Workers
from xcebra.data.epochs import Epochs
from xcebra.training.batches import Batches, Objective, SessionSamples
from xcebra.training.joint_plan import OWN_LAYERS, make_joint_plan
from xcebra.training.loop import _embed_part, _follow, _joined, _loss_of_parts, new_state
from xcebra.training.sampling import NONE, NearestLabel, TimeOffset

# The recordings are short, which is told.
pytestmark = pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")

CPU = torch.device("cpu")
# The calling thread alone.
ONE = Workers(1, CPU)
OFFSET = 3


class LineIndex(nn.Module):
    """A fixed linear encoder: a sample of its session becomes (index on the line, session)."""

    def __init__(self, start, session):
        super().__init__()
        layer = nn.Linear(1, 2).double()
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([[1.0], [0.0]]))
            layer.bias.copy_(torch.tensor([start, session]))
        self.network = nn.Sequential(layer)


class Line:
    """Sessions on a common line, whose samples are read as their own indices."""

    def __init__(self, lengths, n_references, n_negatives=None, lacking=()):
        self.lengths, self.n_references = lengths, n_references
        self.n_negatives = n_negatives or n_references
        self.starts = np.cumsum([0, *lengths[:-1]]).tolist()
        self.n_times = sum(lengths)
        # Every session has two epochs with a gap of five samples between them.
        borders = [
            [(a, a + n // 2), (a + n // 2 + 5, a + n)]
            for a, n in zip(self.starts, lengths, strict=True)
        ]
        self.borders = [border for own in borders for border in own]
        self.epochs = [Epochs.check(own, self.n_times) for own in borders]
        self.sessions = [
            SessionSamples(
                read=lambda times: torch.from_numpy(times).double()[:, None],
                epochs=epochs,
                start=start,
                stop=start + n,
                n_references=r,
                n_negatives=k,
            )
            for epochs, start, n, r, k in zip(
                self.epochs, self.starts, lengths, n_references, self.n_negatives, strict=True
            )
        ]
        whole = Epochs.check(self.borders, self.n_times)
        self.label = np.random.default_rng(1).standard_normal((self.n_times, 1))
        self.valid = ~np.isin(self.session_of(np.arange(self.n_times)), lacking)
        self.objectives = [
            Objective("place", slice(0, 2), NearestLabel(self.label, whole, OFFSET, self.valid)),
            Objective("time", slice(0, 2), TimeOffset(whole, OFFSET), within_sessions=True),
        ]
        self.encoders = [LineIndex(float(a), float(i)) for i, a in enumerate(self.starts)]

    def session_of(self, times):
        return np.searchsorted(self.starts, times, side="right") - 1

    def draw(self, seed):
        return Batches(self.sessions, self.objectives, CPU).draw(np.random.default_rng(seed))

    def times(self, drawn, penalised=False, n_parts=1):
        """Indices on the line of all rows in the common order, as the encoders return them."""

        n_penalised = 3 if penalised else 0
        pieces = [
            _embed_part(self.encoders, drawn, n_penalised, 1.0, k, n_parts) for k in range(n_parts)
        ]
        embedded = _joined(pieces, drawn.order)
        times, session = embedded.detach().numpy().T
        assert np.array_equal(session, self.session_of(times)), "read by another session's encoder"
        n = sum(drawn.n_references)
        return times[:n].astype(int), times[n:].astype(int)


@pytest.mark.parametrize("n_parts", [1, 2, 3])
@pytest.mark.parametrize("penalised", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_row_is_embedded_by_its_own_encoder_and_comes_back_in_order(seed, penalised, n_parts):
    line = Line([60, 90, 40], [8, 12, 5])
    drawn = line.draw(seed)
    # The same draws once more, one after the other.
    rng = np.random.default_rng(seed)
    draws = [
        (own.draw(n, rng), own.draw(n, rng))
        for own, n in zip(line.epochs, line.n_references, strict=True)
    ]
    reference, negative = (np.concatenate(times) for times in zip(*draws, strict=True))
    others = [negative]
    for objective in line.objectives:
        positive = objective.pairs.positives(reference, rng)
        others.append(positive[positive != NONE])
    references_seen, others_seen = line.times(drawn, penalised, n_parts)
    assert np.array_equal(references_seen, reference)
    assert np.array_equal(others_seen, np.concatenate(others))
    assert drawn.n_references == [8, 12, 5]


@pytest.mark.parametrize("seed", range(20))
def test_time_pairs_and_their_negatives_stay_in_their_session(seed):
    line = Line([60, 90, 40], [8, 12, 5])
    drawn = line.draw(seed)
    references, others = line.times(drawn)
    parts = drawn.parts[1]
    assert len(parts) == 3
    for session, part in enumerate(parts):
        used, positives = references[part.rows], others[part.positives]
        assert np.array_equal(positives, used + OFFSET)
        assert set(line.session_of(used)) <= {session}
        assert set(line.session_of(positives)) <= {session}
        epoch = [next(b for b in line.borders if b[0] <= t < b[1]) for t in used]
        assert all(a <= t < b for t, (a, b) in zip(positives, epoch, strict=True))
        negatives = others[part.negatives]
        assert set(line.session_of(negatives)) == {session}
        assert len(negatives) == line.n_negatives[session]
    n_used = [len(part.rows) for part in parts]
    assert [part.share for part in parts] == pytest.approx(np.array(n_used) / sum(n_used))
    # Only references without a later sample in their epoch are left out.
    without = [t for t in references if any(b - OFFSET <= t < b for _, b in line.borders)]
    assert sum(n_used) == len(references) - len(without)


@pytest.mark.parametrize("seed", range(10))
def test_label_positives_and_negatives_come_from_all_sessions(seed):
    line = Line([60, 90, 60], [30, 60, 30])
    drawn = line.draw(seed)
    references, others = line.times(drawn)
    (part,) = drawn.parts[0]
    assert len(references[part.rows]) == 120
    same = line.session_of(references[part.rows]) == line.session_of(others[part.positives])
    assert 0.1 < same.mean() < 0.7
    sessions, counts = np.unique(line.session_of(others[part.negatives]), return_counts=True)
    assert sessions.tolist() == [0, 1, 2]
    assert counts.tolist() == [10, 20, 10]


@pytest.mark.parametrize("n_sessions", [1, 2, 3, 4, 8])
def test_the_number_of_label_negatives_does_not_grow_with_the_sessions(n_sessions):
    line = Line([60] * n_sessions, [24] * n_sessions)
    (part,) = line.draw(0).parts[0]
    others = line.times(line.draw(0))[1]
    assert len(others[part.negatives]) == 24


def test_a_label_that_a_session_lacks_uses_no_sample_of_it():
    line = Line([60, 60, 60], [30, 30, 30], lacking=[1])
    drawn = line.draw(0)
    references, others = line.times(drawn)
    (part,) = drawn.parts[0]
    for times in (references[part.rows], others[part.positives], others[part.negatives]):
        assert set(line.session_of(times)) == {0, 2}
    # Time uses them all the same.
    assert [len(part.rows) > 0 for part in drawn.parts[1]] == [True, True, True]


def test_sessions_without_references_take_part_as_positives_and_negatives():
    line = Line([60, 60], [30, 0], [30, 30])
    drawn = line.draw(0)
    references, others = line.times(drawn)
    assert set(line.session_of(references)) == {0}
    (part,) = drawn.parts[0]
    assert set(line.session_of(others[part.negatives])) == {0, 1}
    assert set(line.session_of(others[part.positives])) == {0, 1}
    first, second = drawn.parts[1]
    assert (first.share, second.share) == (1.0, 0.0)
    assert len(second.rows) == 0


def test_one_session_needs_no_sorting_and_no_copy():
    drawn = Line([60], [30]).draw(0)
    assert drawn.order is None
    (part,) = drawn.parts[0]
    assert (part.rows, part.negatives) == (slice(0, 30), slice(0, 30))


# The loss of a joint batch


def recordings(n_neurons=(6, 9), n_steps=(120, 200)):
    return {
        f"day {i}": xcebra.datasets.synthetic(
            n_hidden=1, n_observed=1, n_steps=n, seed=100 + i, n_neurons=k, noise=0.5
        )
        for i, (k, n) in enumerate(zip(n_neurons, n_steps, strict=True))
    }


def joint_plan(recs, **settings):
    chosen = {"time_dims": 2, "steps": 8, "batch_size": 32, "random_state": 0, "window": 1}
    return make_joint_plan(recs, XCEBRA(**chosen | settings).get_params())


def dense_infonce(reference, positive, negative, config):
    """The definition of the loss, with all pairs at once."""
    if config.similarity == "euclidean":
        matched = -(reference - positive).square().sum(1)
        to_all = -(
            torch.cdist(reference, negative, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        )
    else:
        unit = nn.functional.normalize
        matched = (unit(reference) * unit(positive)).sum(1)
        to_all = unit(reference) @ unit(negative).T
    matched, to_all = matched / config.temperature, to_all / config.temperature
    if config.include_positive:
        to_all = torch.cat([to_all, matched[:, None]], dim=1)
    return (to_all.logsumexp(1) - matched).mean()


def dense_losses(plan, recs, encoders, seed, penalty_samples):
    """Losses and penalty of the batch of a seed in double precision, one session at a time."""
    config, rng = plan.decisions.train, np.random.default_rng(seed)
    names, starts = list(recs), plan.starts

    def embed(times):
        """Embed indices on the line, each by the encoder of its session, without padding."""
        which = np.searchsorted(starts, times, side="right") - 1
        rows = [
            torch.from_numpy(recs[names[s]].neural[[t - starts[s]]]).double()
            for s, t in zip(which, times, strict=True)
        ]
        return [encoders[s](row)[0] for s, row in zip(which, rows, strict=True)]

    references, negatives = [], []
    for samples in plan.samples(encoders, recs):
        references.append(samples.epochs.draw(samples.n_references, rng))
        negatives.append(samples.epochs.draw(samples.n_negatives, rng))
    reference = np.concatenate(references)
    positives = {o.name: o.pairs.positives(reference, rng) for o in plan.objectives()}
    losses = {}
    for label in plan.labels:
        block = plan.decisions.blocks[label.name]
        used = positives[label.name] != NONE
        chosen = np.concatenate([own[: round(len(own) / len(recs))] for own in negatives])
        z = [
            torch.stack([row[block] for row in embed(times)])
            for times in (reference[used], positives[label.name][used], chosen)
        ]
        losses[label.name] = dense_infonce(*z, config)
    if "time" in positives:
        first = plan.decisions.time_latents.start
        terms, counts, start = [], [], 0
        for own, others in zip(references, negatives, strict=True):
            positive = positives["time"][start : start + len(own)]
            used = positive != NONE
            z = [
                torch.stack([row[first:] for row in embed(times)])
                for times in (own[used], positive[used], others)
            ]
            terms.append(dense_infonce(*z, config))
            counts.append(used.sum())
            start += len(own)
        losses["time"] = sum(n / sum(counts) * term for n, term in zip(counts, terms, strict=True))
    norms = 0.0
    for name, encoder, own, start in zip(names, encoders, references, starts, strict=True):
        rows = torch.from_numpy(recs[name].neural[own[:penalty_samples] - start]).double()
        x = encoder.components(rows)
        jacobian = torch.autograd.functional.jacobian(
            lambda x, network=encoder.network: network(x).sum(0), x, create_graph=True
        )
        norm = jacobian.square().sum() / len(x)
        norms = norms + norm * len(own) / len(reference)
    return losses, norms


SITUATIONS = {
    "shared": {},
    "own": {"time_block": "own"},
    "by samples": {"session_weight": "samples"},
    "unit blocks": {"distance": "cosine"},
    "own unit blocks": {"distance": "cosine", "time_block": "own"},
    "time on its block": {"time_on": "block"},
    "no time": {"time_dims": 0},
    "paper": {"recipe": "paper", "label_dims": 1},
}


def check_against_dense(plan, recs, workers=ONE):
    config = plan.decisions.train
    encoders = plan.make_encoders(CPU)
    # Copied together: layers that are shared stay shared.
    dense = copy.deepcopy(encoders)
    for encoder in dense:
        encoder.double()
    losses, norms = dense_losses(plan, recs, dense, 5, config.penalty_samples)
    weight = 0.3
    (sum(losses.values()) + weight / config.temperature * norms).backward()
    objectives = plan.objectives()
    state = new_state(encoders, config)
    drawn = Batches(plan.samples(encoders, recs), objectives, CPU).draw(np.random.default_rng(5))
    record = workers.lead(_follow, state.learner, drawn, objectives, config, weight, 0.0, workers)
    for name, loss in losses.items():
        assert float(record[f"loss/{name}"]) == pytest.approx(loss.item(), rel=1e-5), name
    assert float(record["penalty"]) == pytest.approx(norms.item(), rel=1e-5)
    expected = {n: p.grad for i, e in enumerate(dense) for n, p in named(i, e)}
    gradients = {n: p.grad for i, e in enumerate(encoders) for n, p in named(i, e)}
    for name, gradient in gradients.items():
        scale = float(expected[name].abs().max()) + 1e-3
        assert torch.allclose(gradient.double(), expected[name], rtol=0, atol=1e-4 * scale), name


def named(session, encoder):
    return [(f"{session} {name}", p) for name, p in encoder.named_parameters()]


@pytest.mark.parametrize("settings", SITUATIONS.values(), ids=SITUATIONS.keys())
def test_the_loss_and_its_gradient_are_those_of_a_dense_computation(settings):
    recs = recordings()
    plan = joint_plan(recs, **settings)
    assert plan.shared == (settings.get("time_block") != "own")
    check_against_dense(plan, recs)


@pytest.fixture(params=[2, 3, 12])
def workers(request):
    """More workers than a batch of this size has in a fit."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    with Workers(request.param, CPU) as several:
        yield several
    torch.set_num_threads(before)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_several_workers_compute_the_same_loss_and_gradient(distance, workers):
    recs = recordings()
    check_against_dense(joint_plan(recs, distance=distance), recs, workers)


def test_several_workers_give_the_same_bits_again(workers):
    """Five steps with the penalty, twice: encoders and losses are the same to the bit."""
    recs = recordings()
    plan = joint_plan(recs)
    config, objectives = plan.decisions.train, plan.objectives()

    def trained():
        encoders = plan.make_encoders(CPU)
        batches = Batches(plan.samples(encoders, recs), objectives, CPU)
        learner, rng = new_state(encoders, config).learner, np.random.default_rng(0)
        arguments = (objectives, config, 0.3, 0.01, workers)
        losses = [workers.lead(_follow, learner, batches.draw(rng), *arguments) for _ in range(5)]
        return losses, [p.detach() for e in encoders for p in e.parameters()]

    (losses, weights), (losses_again, weights_again) = trained(), trained()
    assert losses == losses_again
    assert all(torch.equal(a, b) for a, b in zip(weights, weights_again, strict=True))


def test_a_session_with_fewer_rows_than_workers(workers):
    """Of twelve, some have no row of it. The gradient is that of one worker."""
    recs = recordings()
    plan = joint_plan(recs)
    gradients = []
    for own in (ONE, workers):
        encoders = plan.make_encoders(CPU)
        samples = plan.samples(encoders, recs)
        few = [replace(samples[0], n_references=1, n_negatives=1), *samples[1:]]
        objectives = plan.objectives()
        drawn = Batches(few, objectives, CPU).draw(np.random.default_rng(0))
        assert len(drawn.times[0]) < 12
        learner = new_state(encoders, plan.decisions.train).learner
        own.lead(_follow, learner, drawn, objectives, plan.decisions.train, 0.3, 0.0, own)
        gradients.append([p.grad for e in encoders for p in e.parameters()])
    for one, several in zip(*gradients, strict=True):
        assert torch.allclose(one, several, rtol=0, atol=1e-5 * float(one.abs().max()) + 1e-7)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_sessions_with_other_numbers_of_time_latents_are_padded_with_zeros(distance, monkeypatch):
    """The padding changes neither the loss nor the gradient."""
    monkeypatch.setattr(
        "xcebra.training.plan.shared_dimensions", lambda rec, *_: {6: 1, 9: 3}[rec.n_neurons]
    )
    recs = recordings()
    plan = joint_plan(recs, time_dims=None, time_block="own", distance=distance)
    widths = [encoder.network[-2].out_features for encoder in plan.make_encoders(CPU)]
    assert widths == [2, 4]
    check_against_dense(plan, recs)


def test_labels_that_a_session_lacks_do_not_enter_its_loss():
    recs = recordings()
    first, second = recs.values()
    speed = np.cumsum(np.random.default_rng(0).standard_normal(second.n_times))
    both = {
        "day 0": first,
        "day 1": Recording(second.neural, {**second.labels, "speed": speed}),
    }
    plan = joint_plan(both)
    assert list(plan.decisions.blocks) == ["z2", "speed", "time"]
    assert list(plan.plans["day 0"].decisions.blocks) == ["z2", "time"]
    drawn = Batches(plan.samples(plan.make_encoders(CPU), both), plan.objectives(), CPU).draw(
        np.random.default_rng(0)
    )
    (part,) = drawn.parts[1]
    n_first = drawn.n_references[0]
    assert (part.rows >= n_first).all()
    assert (part.negatives >= n_first).all()


def test_parts_without_samples_are_left_out_of_the_mean():
    """A part that cannot be used takes no share of the loss, nor of the chance level."""
    line = Line([60, 60], [30, 0], [30, 30])
    drawn = line.draw(0)
    config = joint_plan(recordings()).decisions.train
    embedded = torch.randn(len(drawn.order), 2, generator=torch.Generator().manual_seed(0))
    reference, others = embedded[:30], embedded[30:]
    loss, chance = _loss_of_parts(
        line.objectives[1], drawn.parts[1], reference, others, config, ONE
    )
    part = drawn.parts[1][0]
    z = (reference[part.rows], others[part.positives], others[part.negatives])
    alone = dense_infonce(*(t.double() for t in z), config)
    assert float(loss) == pytest.approx(float(alone), rel=1e-5)
    assert chance == pytest.approx(math.log(30 + config.include_positive))


@pytest.mark.parametrize("shared", [True, False])
def test_shared_layers_are_the_same_parameters_and_own_ones_are_not(shared):
    recs = recordings((6, 9, 7), (120, 120, 120))
    plan = joint_plan(recs, time_block="shared" if shared else "own")
    encoders = plan.make_encoders(CPU)
    state = new_state(encoders, plan.decisions.train)
    for one, other in pairwise(encoders):
        assert not {id(p) for p in one.network[:OWN_LAYERS].parameters()} & {
            id(p) for p in other.parameters()
        }
        ours, theirs = ({id(p) for p in e.network[OWN_LAYERS:].parameters()} for e in (one, other))
        assert ours == theirs if shared else not ours & theirs
    listed = [p for group in state.learner.optimizer.param_groups for p in group["params"]]
    n_own = sum(1 for e in encoders for _ in e.network[:OWN_LAYERS].parameters())
    n_later = sum(1 for _ in encoders[0].network[OWN_LAYERS:].parameters())
    assert len(listed) == n_own + n_later * (1 if shared else 3)
    assert len({id(p) for p in listed}) == len(listed)
    # The gradient of one session moves another one, or does not.
    first, second = (torch.from_numpy(rec.neural[:20]) for rec in list(recs.values())[:2])
    before = encoders[1](second).detach().clone()
    encoders[0](first).square().sum().backward()
    for group in state.learner.optimizer.param_groups:
        group["weight_decay"] = 0.0
    state.learner.optimizer.step()
    assert torch.equal(encoders[1](second), before) is not shared


def test_windows_of_a_session_stop_at_its_border():
    """The first and the last sample of a session repeat their edge, not another session."""
    recs = {
        name: Recording(
            np.full((50, 4), value) + np.arange(50)[:, None] / 100 + np.eye(50, 4),
            {"z": np.sin(np.arange(50) / 5)},
        )
        for name, value in (("a", 1.0), ("b", 1000.0))
    }
    plan = joint_plan(recs, window=5, batch_size=8, time_dims=1, time_offset=5)
    encoders = plan.make_encoders(CPU)
    all_samples = plan.samples(encoders, recs)
    for samples, encoder, rec in zip(all_samples, encoders, recs.values(), strict=True):
        times = np.array([0, 49])
        x = torch.from_numpy(rec.windows(times, 5))
        assert x.shape == (2, 5, 4)
        assert set(x.round(decimals=-2).unique().tolist()) == {round(float(rec.neural[9, 0]), -2)}
        assert torch.allclose(samples.read(times), encoder.components(x), rtol=1e-5, atol=1e-5)
