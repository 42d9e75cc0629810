"""Two decoders whose networks are set by hand, so that every derivative is known."""

import numpy as np
import torch
from torch import nn

from xcebra.attribution.crossed_derivatives import derivatives
from xcebra.attribution.crossed_source import Source
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.networks.crossed_decoder import CrossedDecoder, LabelColumns
from xcebra.networks.decoder import Decoder
from xcebra.networks.encoder import Encoder, Inputs, embed

N, NEURONS, TIME = 300, 6, 2
TIMES = np.arange(0, N, 3)
KINDS = {"position": ("continuous", 2), "heading": ("circular", 2), "odour": ("discrete", 3)}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def points_of(kind, width, rng, n=N):
    if kind == "circular":
        angle = rng.uniform(0, 2 * np.pi, n)
        return np.column_stack([np.cos(angle), np.sin(angle)])
    if kind == "discrete":
        return np.eye(width)[rng.choice(width, n, p=[0.5, 0.3, 0.2])]
    return rng.standard_normal((n, width)) * np.geomspace(0.5, 3, width) + 4


def case(
    *names,
    n_neurons=NEURONS,
    n_time=TIME,
    hidden=8,
    members=None,
    n=N,
    seed=0,
    told=False,
    bend=0.0,
):
    """A source with labels of some kinds, and decoders of one hidden layer or none.

    Neurons are left out one by one, and are uncorrelated: without a neuron it is simply zero.
    """
    rng = np.random.default_rng(seed)
    labels, columns, at = {}, [], 0
    for name in names:
        kind, width = KINDS[name]
        points = points_of(kind, width, rng, n)
        labels[name] = Label(name, kind, points, np.ones(n, dtype=bool))
        columns.append(LabelColumns(name, kind, slice(at, at + width)))
        at += width
    recording = Recording(rng.standard_normal((n, n_neurons)) * np.geomspace(0.5, 5, n_neurons) + 1)
    inputs = Inputs.measure(recording, recording.epochs, project=False)
    encoder = Encoder(inputs, at + n_time, limit=9.0, generator=generator(seed))
    encoder.network = nn.Sequential(nn.Linear(n_neurons, at + n_time))
    every = [label.points for label in labels.values()]
    whole = np.concatenate(every, axis=1) if every else np.zeros((n, 0))
    discrete = np.array(
        [
            KINDS[c.name][0] == "discrete"
            for c in columns
            for _ in range(c.columns.stop - c.columns.start)
        ],
        dtype=bool,
    )
    with torch.no_grad():
        torch.nn.init.normal_(encoder.network[0].weight, generator=generator(seed))
        embedding = embed(encoder, recording)
    fixed = {
        "around": np.array(False),
        "patterns": np.zeros((n_neurons, 0)),
        "group": np.arange(n_neurons),
        "correlations": np.eye(n_neurons)[None],
        "borders": np.zeros(0, dtype=np.int64),
        "label_mean": whole.mean(axis=0),
        "label_scale": whole.std(axis=0),
        "directions": rng.standard_normal((at, 3)),
        "phases": rng.uniform(0, 6, 3),
        "told": rng.standard_normal((n_neurons, 4 + at, n_time)) * float(told),
        "bend": rng.standard_normal((n_neurons, 4 + at, n_time)) * bend,
        "latent_mean": rng.standard_normal(n_time),
        "latent_scale": np.geomspace(0.5, 2, n_time),
        "embedding_scale": np.geomspace(0.25, 3, n_time),
        "reference_embedding": embedding[::7],
        "reference_labels": whole[::7],
        "class_shares": np.where(discrete, whole.mean(axis=0), 1.0),
    }
    fixed = {
        name: torch.from_numpy(np.asarray(a)).float()
        if a.dtype.kind == "f"
        else torch.from_numpy(a)
        for name, a in fixed.items()
    }
    decoder = CrossedDecoder(fixed, columns, generator(seed))
    for k in range(2):
        if members is not None:
            decoder.members[k] = plain(members[k])
        else:
            decoder.members[k] = bent(at + n_time, hidden, n_neurons, seed=10 * seed + k)
    block = slice(at, at + n_time) if n_time else None
    # Nothing is left over here that would be read with its help.
    unused = Decoder(inputs, torch.zeros(at + n_time), torch.ones(at + n_time))
    return Source(encoder, unused, decoder, recording, labels, block)


def plain(weights):
    """A decoder without a hidden layer; weights of shape (neuron, input)."""
    layer = nn.Linear(weights.shape[1], weights.shape[0])
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(weights))
        layer.bias.fill_(0.3)
    return nn.Sequential(layer)


def bent(n_inputs, hidden, n_outputs, seed):
    network = nn.Sequential(nn.Linear(n_inputs, hidden), nn.GELU(), nn.Linear(hidden, n_outputs))
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator(seed))
    return network


def rows_of(source, neuron, times):
    """What the decoders are given for one neuron, in float64, by hand."""
    decoder = source.decoder
    x = source.recording.neural[times].astype(np.float64)
    u = (x - source.encoder.mean.double().numpy()) * source.encoder.reciprocal.double().numpy()
    u[:, neuron] = 0.0  # left out; nobody predicts it
    weights, bias = (p.detach().double().numpy() for p in source.encoder.network[0].parameters())
    latents = (u @ weights.T + bias)[:, source.time_block or slice(0, 0)]
    points = np.concatenate([label.points[times] for label in source.labels.values()], axis=1)
    scaled = (points - decoder.label_mean.double().numpy()) / decoder.label_scale.double().numpy()
    waves = np.cos(scaled @ decoder.directions.double().numpy() + decoder.phases.double().numpy())
    functions = np.concatenate([np.ones((len(times), 1)), scaled, waves], axis=1)
    part = functions @ decoder.told[neuron].double().numpy()
    rest = (
        latents - part - decoder.latent_mean.double().numpy()
    ) / decoder.latent_scale.double().numpy()
    return torch.from_numpy(np.concatenate([scaled, rest], axis=1))


def dense(source, times):
    """Derivatives of every neuron by standardised inputs, by torch.func in float64."""
    found = []
    for member in source.decoder.members:
        network = nn.Sequential(*member)
        weights = {name: p.detach().double() for name, p in network.named_parameters()}

        def one(row, neuron, network=network, weights=weights):
            return torch.func.functional_call(network, weights, (row[None],))[0, neuron]

        by_neuron = [
            torch.func.vmap(torch.func.grad(one), in_dims=(0, None))(rows_of(source, i, times), i)
            for i in range(source.recording.n_neurons)
        ]
        found.append(torch.stack(by_neuron, dim=1))
    return torch.stack(found).numpy()


def whole(source, times):
    parts = list(derivatives(source, times))
    np.testing.assert_array_equal(np.concatenate([p for p, _ in parts]), np.arange(len(times)))
    return torch.cat([maps for _, maps in parts], dim=1).numpy()
