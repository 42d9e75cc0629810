"""The example of the README, which draws its first figure."""

import xcebra

rec = xcebra.datasets.synthetic(n_hidden=4, n_observed=2, n_steps=100_000, seed=0)

model = xcebra.XCEBRA(label_dims=2, time_dims=4, random_state=0)
model.fit(rec.neural, rec.labels["z2"])

amap = model.attribute(rec.neural)
print("auROC", xcebra.metrics.auroc(amap, rec.ground_truth, block="label", factor="z2"))
ax = amap.plot(truth=rec.ground_truth)
ax.figure.savefig("map.png", dpi=150)
