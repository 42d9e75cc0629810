  // Tuning curves and rate maps, and the panel of the neuron that was chosen.
  const tuned = numbers.tuning;
  const tuningRow = new Map(tuned.neurons.map((neuron, row) => [neuron, row]));
  const tuningBytes = {};
  Object.entries(tuned.labels).forEach(([name, label]) => {
    tuningBytes[name] = { means: bytes(label.means), errors: label.errors ? bytes(label.errors) : null };
  });

  // The means and standard errors of one neuron; null in bins that were hardly visited.
  const tuningOf = (name, neuron) => {
    const label = tuned.labels[name];
    const row = tuningRow.get(neuron);
    if (!label || row === undefined) return null;
    const { means, errors } = tuningBytes[name];
    const size = means.length / tuned.neurons.length;
    const [low, high] = [label.low[row], label.high[row]];
    const scale = (high > low ? high - low : 1) / 254;
    const part = (all) => [...all.subarray(row * size, (row + 1) * size)];
    return {
      label, low, high,
      means: part(means).map((v) => (v === 255 ? null : low + v * scale)),
      errors: errors ? part(errors).map((v) => v * scale) : null,
    };
  };
  const centresOf = (edges) => edges.slice(1).map((edge, i) => (edge + edges[i]) / 2);
  const round = (v) => (Math.abs(v) >= 10 ? v.toFixed(0) : String(Number(v.toPrecision(2))));

  // A line through known points only, with gaps where nothing is known.
  const lineThrough = (points) => {
    let text = "";
    let open = false;
    points.forEach((point) => {
      if (point) text += `${open ? "L" : "M"}${point[0].toFixed(1)},${point[1].toFixed(1)}`;
      open = Boolean(point);
    });
    return text;
  };
  // Stretches of neighbouring bins that are known, as lists of indices.
  const runsOf = (means) => {
    const runs = [];
    means.forEach((v, i) => {
      if (v === null) return;
      if (i && means[i - 1] !== null && runs.length) runs[runs.length - 1].push(i);
      else runs.push([i]);
    });
    return runs;
  };

  const circlePicture = (svg, t, colour) => {
    const [cx, cy, radius] = [100, 84, 62];
    const angles = centresOf(t.label.edges[0]).map((degrees) => (degrees * Math.PI) / 180);
    const place = (value, i) => {
      const r = (radius * Math.max(0, value)) / (t.high || 1);
      return [cx + r * Math.cos(angles[i]), cy - r * Math.sin(angles[i])];
    };
    svg.append(drawn("circle", { cx, cy, r: radius, class: "grid" }),
      drawn("path", { d: `M${cx - radius},${cy}H${cx + radius}M${cx},${cy - radius}V${cy + radius}`, class: "grid" }));
    [["0°", radius + 4, 4, "start"], ["90°", 0, -radius - 5, "middle"], ["180°", -radius - 4, 4, "end"],
      ["270°", 0, radius + 14, "middle"]].forEach(([text, dx, dy, anchor]) => {
      svg.append(drawn("text", { x: cx + dx, y: cy + dy, "text-anchor": anchor }, text));
    });
    const bins = [...t.means.keys(), 0];
    const known = (i) => t.means[i] !== null;
    bins.slice(1).forEach((next, k) => {
      const i = bins[k];
      if (!known(i) || !known(next)) return;
      const corners = [place(t.means[i] + t.errors[i], i), place(t.means[next] + t.errors[next], next),
        place(t.means[next] - t.errors[next], next), place(t.means[i] - t.errors[i], i)];
      svg.append(drawn("path", { d: `${lineThrough(corners)}Z`, fill: colour, opacity: 0.25 }));
    });
    const points = bins.map((i) => (known(i) ? place(t.means[i], i) : null));
    svg.append(drawn("path", { d: lineThrough(points), fill: "none", stroke: colour, "stroke-width": 2 }));
  };

  // Axes of a curve, bars or a map: ticks, and titles on both sides.
  const axesOf = (svg, box, xs, ys, xTitle, yTitle) => {
    const [left, top, right, bottom] = box;
    svg.append(drawn("path", { d: `M${left},${top}V${bottom}H${right}`, class: "axis" }));
    xs.forEach(([x, text]) => svg.append(drawn("text", { x, y: bottom + 13, "text-anchor": "middle" }, text)));
    ys.forEach(([y, text]) => svg.append(drawn("text", { x: left - 4, y: y + 4, "text-anchor": "end" }, text)));
    svg.append(drawn("text", { x: (left + right) / 2, y: bottom + 28, "text-anchor": "middle" }, xTitle));
    const middle = (top + bottom) / 2;
    svg.append(drawn("text", { x: 9, y: middle, "text-anchor": "middle",
      transform: `rotate(-90 9 ${middle})` }, yTitle));
  };

  const curvePicture = (svg, t, colour) => {
    const box = [46, 8, 194, 124];
    const [left, top, right, bottom] = box;
    const edges = t.label.edges[0];
    const [first, last] = [edges[0], edges[edges.length - 1]];
    const x = (v) => left + ((right - left) * (v - first)) / (last - first || 1);
    const y = (v) => bottom - ((bottom - top) * (v - t.low)) / (t.high - t.low || 1);
    const centres = centresOf(edges);
    runsOf(t.means).forEach((run) => {
      const upper = run.map((i) => [x(centres[i]), y(t.means[i] + t.errors[i])]);
      const lower = run.map((i) => [x(centres[i]), y(Math.max(t.means[i] - t.errors[i], t.low))]).reverse();
      svg.append(drawn("path", { d: `${lineThrough([...upper, ...lower])}Z`, fill: colour, opacity: 0.25 }));
    });
    const points = t.means.map((v, i) => (v === null ? null : [x(centres[i]), y(v)]));
    svg.append(drawn("path", { d: lineThrough(points), fill: "none", stroke: colour, "stroke-width": 2 }));
    axesOf(svg, box, ticks(first, last, 3).map((v) => [x(v), round(v)]),
      ticks(t.low, t.high, 4).map((v) => [y(v), round(v)]), t.label.titles[0], t.label.rate);
  };

  const barPicture = (svg, t, colour) => {
    const box = [46, 8, 194, 124];
    const [left, top, right, bottom] = box;
    const wide = (right - left) / t.means.length;
    const y = (v) => bottom - ((bottom - top) * (v - t.low)) / (t.high - t.low || 1);
    const places = t.means.map((_, i) => left + (i + 0.5) * wide);
    t.means.forEach((v, i) => {
      if (v === null) return;
      svg.append(drawn("rect", { x: places[i] - 0.35 * wide, y: Math.min(y(v), y(0)), width: 0.7 * wide,
        height: Math.abs(y(0) - y(v)), fill: colour }));
      svg.append(drawn("path", { d: `M${places[i]},${y(v - t.errors[i])}V${y(v + t.errors[i])}`, class: "axis" }));
    });
    const every = Math.ceil(t.label.classes.join("  ").length / 24);
    axesOf(svg, box, places.map((x, i) => [x, i % every ? "" : t.label.classes[i].slice(0, 12)]),
      ticks(t.low, t.high, 4).map((v) => [y(v), round(v)]), t.label.titles[0], t.label.rate);
  };

  const mapPicture = (svg, t) => {
    const [xs, ys] = t.label.edges;
    const [nx, ny] = [xs.length - 1, ys.length - 1];
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [nx, ny];
    const c = canvas.getContext("2d");
    t.means.forEach((v, i) => {
      if (v === null) return;
      c.fillStyle = css(between(HUES, (v - t.low) / (t.high - t.low || 1)));
      c.fillRect(Math.floor(i / ny), ny - 1 - (i % ny), 1, 1);
    });
    const [left, top, most] = [46, 6, 120];
    const unit = most / Math.max(nx, ny);
    const box = [left, top, left + unit * nx, top + unit * ny];
    svg.append(drawn("image", { x: left, y: top, width: unit * nx, height: unit * ny,
      href: canvas.toDataURL(), preserveAspectRatio: "none", style: "image-rendering: pixelated" }));
    const scale = (edges, from, to) => (v) => from + ((to - from) * (v - edges[0])) / (edges[edges.length - 1] - edges[0]);
    const [x, y] = [scale(xs, box[0], box[2]), scale(ys, box[3], box[1])];
    axesOf(svg, box, ticks(xs[0], xs[nx], 3).map((v) => [x(v), round(v)]),
      ticks(ys[0], ys[ny], 4).map((v) => [y(v), round(v)]), t.label.titles[0], t.label.titles[1]);
    const bar = box[2] + 8;
    for (let k = 0; k < 24; k += 1) {
      svg.append(drawn("rect", { x: bar, y: box[3] - ((k + 1) * (box[3] - box[1])) / 24, width: 6,
        height: (box[3] - box[1]) / 24 + 0.5, fill: css(between(HUES, k / 23)) }));
    }
    svg.append(drawn("text", { x: bar + 9, y: box[1] + 8 }, round(t.high)),
      drawn("text", { x: bar + 9, y: box[3] }, round(t.low)));
  };

  // One picture with a title; null if the page does not have it.
  // The title is a list of texts and elements.
  const tuningPicture = (name, neuron, title) => {
    const t = tuningOf(name, neuron);
    if (!t) return null;
    const { shape } = t.label;
    const known = t.means.filter((v) => v !== null);
    const peak = Math.max(...known);
    const svg = drawn("svg", { viewBox: "0 0 200 166", role: "img",
      "aria-label": `Neuron ${map.neurons[neuron]}, ${name}: highest mean ${round(peak)} ${t.label.rate}` });
    const { colour } = styleOf(neuron);
    if (shape === "circle") circlePicture(svg, t, colour);
    else if (shape === "line") curvePicture(svg, t, colour);
    else if (shape === "plane") mapPicture(svg, t);
    else barPicture(svg, t, colour);
    const unit = t.label.rate === "spikes per second" ? "spikes/s" : t.label.rate;
    const ends = shape === "circle" ? `peak ${round(peak)} ${unit}` : shape === "plane" ? `colour: ${unit}` : "";
    const caption = made("figcaption", {}, made("strong", {}, ...title));
    if (ends) caption.append(made("span", { class: "soft" }, ends));
    return made("figure", { class: "tuning", "data-neuron": neuron, "data-label": name }, caption, svg);
  };

  const panel = () => {
    const aside = byId("neuron-panel");
    const body = byId("neuron-body");
    let shown = null;
    const row = (...cells) => made("tr", {}, made("th", { scope: "row" }, cells[0]),
      ...cells.slice(1).map((text) => made("td", { class: "number" }, text)));
    const fill = () => {
      if (shown === null) return;
      byId("neuron-head").textContent = `Neuron ${map.neurons[shown]}`;
      const known = Object.entries(map.units).filter(([, texts]) => texts[shown] !== "");
      const facts = known.map(([name, texts]) => `${name}: ${texts[shown]}`).join(", ");
      const tested = map.blocks.some((b) => b.tested);
      const heads = ["", "score", "rank", ...(tested ? ["only it explains", "connected"] : [])];
      const rows = map.blocks.filter((b) => b.role === "label").map((b) => {
        if (b.doubt) return row(b.name, "not to be read", "–", ...(tested ? ["–", "–"] : []));
        const more = !tested ? [] : !b.tested ? ["–", "–"]
          : [percent(b.tested.share[shown]), b.called[shown] ? "yes" : "no"];
        return row(b.name, show(b.scores[shown]), `${b.order.indexOf(shown) + 1} of ${n}`, ...more);
      });
      const table = made("table", {}, made("thead", {}, made("tr", {},
        ...heads.map((text, i) => made("th", { scope: "col", ...(i ? { class: "number" } : {}) }, text)))),
      made("tbody", {}, ...rows));
      const labels = map.blocks.filter((b) => b.role !== "time");
      const pictures = labels.map((b) => tuningPicture(b.name, shown, [titleOf(b)])).filter(Boolean);
      body.replaceChildren(made("div", {}, ...(facts ? [made("p", { class: "soft" }, facts)] : []), table));
      if (pictures.length) body.append(made("div", { class: "tuning-grid" }, ...pictures));
      else if (Object.keys(tuned.labels).length) {
        body.append(made("p", { class: "soft" },
          "This page has the tuning of the neurons that come first for a label, and not of this one."));
      }
    };
    const close = () => {
      aside.hidden = true;
      shown = null;
      document.dispatchEvent(new CustomEvent("closed"));
    };
    document.addEventListener("chosen", (event) => {
      shown = event.detail;
      aside.hidden = false;
      fill();
    });
    byId("neuron-close").addEventListener("click", close);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !aside.hidden) close(); });
    drawings.push(fill);
  };
