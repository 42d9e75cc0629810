  // The answer: neurons sorted by their score for a label, with the result of the test.
  const markerPath = (kind, x, y, r) => [
    `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
    `M${x - 0.9 * r},${y - 0.9 * r}h${1.8 * r}v${1.8 * r}h${-1.8 * r}Z`,
    `M${x},${y - 1.15 * r}L${x + 1.1 * r},${y + 0.85 * r}H${x - 1.1 * r}Z`,
    `M${x},${y - 1.25 * r}L${x + 1.25 * r},${y}L${x},${y + 1.25 * r}L${x - 1.25 * r},${y}Z`,
    `M${x},${y + 1.15 * r}L${x + 1.1 * r},${y - 0.85 * r}H${x - 1.1 * r}Z`,
    `M${x - r},${y - r / 3}h${0.67 * r}v${-0.67 * r}h${0.67 * r}v${0.67 * r}h${0.67 * r}v${0.67 * r}h${-0.67 * r}v${0.67 * r}h${-0.67 * r}v${-0.67 * r}h${-0.67 * r}Z`,
    `M${x - r},${y - r}L${x},${y - r / 3}L${x + r},${y - r}L${x + r / 3},${y}L${x + r},${y + r}L${x},${y + r / 3}L${x - r},${y + r}L${x - r / 3},${y}Z`,
  ][kind];

  // A marker as it is in the figures, followed by a text.
  const sample = (marker, colour, filled, ...texts) => {
    const svg = drawn("svg", { viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true" });
    svg.append(drawn("path", { d: markerPath(marker, 7, 7, 5), stroke: colour, "stroke-width": 1.6,
      fill: filled ? colour : "var(--back)" }));
    return made("span", { class: "sample" }, svg, ...texts);
  };

  const answerFigure = (figure) => {
    const block = map.blocks.find((b) => b.name === figure.dataset.block);
    const drawing = figure.querySelector(".drawing");
    const legend = figure.querySelector(".legend");
    const readout = figure.querySelector(".readout");
    const tested = block.doubt ? null : block.tested;
    let rank = 0;
    let chosen = null;
    let layout = null;

    const style = (neuron) => (block.doubt ? { ...styleOf(neuron), colour: "var(--soft)" } : styleOf(neuron));
    const paint = (svg, neuron, x, y, r) => {
      const { colour, marker } = style(neuron);
      const called = block.called?.[neuron];
      svg.append(drawn("path", { d: markerPath(marker, x, y, r), stroke: colour,
        "stroke-width": Math.max(1, r / 3.5), fill: called ? colour : "var(--back)",
        "data-neuron": neuron, class: called ? "called" : "not-called" }));
    };
    const axis = (svg, left, right, top, bottom, low, high, title) => {
      const y = (v) => bottom - ((bottom - top) * (v - low)) / (high - low || 1);
      ticks(low, high, 6).forEach((v) => {
        svg.append(drawn("path", { d: `M${left},${y(v)}H${right}`, class: v === 0 ? "zero" : "grid" }));
        svg.append(drawn("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, show(v)));
      });
      title.forEach((text, i) => {
        const x = 12 + 14 * i;
        const middle = (top + bottom) / 2;
        svg.append(drawn("text", { x, y: middle, "text-anchor": "middle", class: "title",
          transform: `rotate(-90 ${x} ${middle})` }, text));
      });
      return y;
    };
    const ends = (values) => {
      const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
      const margin = 0.06 * (high - low || 1);
      return [low - margin, high + margin];
    };

    const draw = () => {
      const width = Math.max(drawing.clientWidth, 280);
      const left = 72;
      const right = width - 8;
      const wide = (right - left) / n;
      const names = n <= 40 && wide >= 9;
      const longest = names ? Math.max(...map.neurons.map((name) => name.length)) : 0;
      const turned = longest * 7 > wide;
      const below = names ? (turned ? Math.min(90, 8 + 7 * longest) : 18) : 4;
      const [top, upper] = [8, width < 500 ? 150 : 190];
      const lower = tested ? (width < 500 ? 110 : 130) : 0;
      const height = top + upper + (lower ? 14 + lower : 0) + below + 22;
      const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
      const r = Math.max(2.3, Math.min(6, 0.38 * wide));
      const x = (i) => left + (i + 0.5) * wide;
      layout = { left, wide };
      if (chosen !== null) {
        svg.append(drawn("rect", { x: x(block.order.indexOf(chosen)) - wide / 2, y: top, width: Math.max(wide, 2),
          height: height - top - 22, class: "chosen" }));
      }
      if (document.activeElement === drawing) {
        svg.append(drawn("rect", { x: x(rank) - wide / 2, y: top, width: Math.max(wide, 2),
          height: height - top - 22, class: "cursor" }));
      }
      const short = block.name.length > 18 ? `${block.name.slice(0, 17)}…` : block.name;
      const yScore = axis(svg, left, right, top, top + upper, ...ends(block.scores), [`score for ${short}`]);
      block.order.forEach((neuron, i) => paint(svg, neuron, x(i), yScore(block.scores[neuron]), r));
      if (tested) {
        const in100 = (values) => values.map((v) => 100 * v);
        const [shares, lows, highs] = [tested.share, tested["share low"], tested["share high"]].map(in100);
        const start = top + upper + 14;
        const yShare = axis(svg, left, right, start, start + lower, ...ends([...lows, ...highs]),
          ["variance that only", `${short} explains (%)`]);
        block.order.forEach((neuron, i) => {
          svg.append(drawn("path", { d: `M${x(i)},${yShare(lows[neuron])}V${yShare(highs[neuron])}`,
            stroke: style(neuron).colour, "stroke-width": Math.max(0.8, Math.min(1.8, wide / 6)), class: "interval" }));
          paint(svg, neuron, x(i), yShare(shares[neuron]), Math.max(2, 0.85 * r));
        });
      }
      const foot = height - below - 22;
      if (names) {
        block.order.forEach((neuron, i) => {
          const text = map.neurons[neuron].slice(0, 14);
          const place = turned ? { x: x(i) + 4, y: foot + 4, "text-anchor": "end",
            transform: `rotate(-90 ${x(i) + 4} ${foot + 4})` } : { x: x(i), y: foot + 14, "text-anchor": "middle" };
          svg.append(drawn("text", place, text));
        });
      }
      svg.append(drawn("text", { x: (left + right) / 2, y: height - 5, "text-anchor": "middle", class: "title" },
        "neuron, highest score first"));
      drawing.replaceChildren(svg);
      explain();
    };

    const explain = () => {
      const items = [];
      const given = map.groups[grouping];
      (given?.names ?? []).forEach((name, i) => {
        const member = given.index.indexOf(i);
        const { colour, marker } = style(member);
        items.push(sample(marker, colour, true, name));
      });
      if (tested) {
        items.push(sample(0, "var(--text)", true, "called connected (at most 5 % false)"),
          sample(0, "var(--text)", false, "not called connected"));
      }
      legend.replaceChildren(...items);
    };
    const tell = () => {
      const neuron = block.order[rank];
      const group = groupOf(neuron);
      let text = `neuron ${map.neurons[neuron]}${group ? ` (${group})` : ""}, rank ${rank + 1} of ${n}`;
      if (!block.doubt) text += `: score ${show(block.scores[neuron])}`;
      if (tested) {
        const [share, low, high] = [tested.share, tested["share low"], tested["share high"]].map((v) => v[neuron]);
        text += `; only ${block.name} explains ${percent(share)} of its variance ` +
          `(interval ${(100 * low).toFixed(1)} to ${(100 * high).toFixed(1)} %); ` +
          `${block.called[neuron] ? "called connected" : "not called connected"}`;
      }
      readout.textContent = text;
      drawing.setAttribute("aria-valuenow", rank + 1);
      drawing.setAttribute("aria-valuetext", text);
    };
    const pointed = (event) => {
      const box = drawing.getBoundingClientRect();
      const i = Math.floor((event.clientX - box.left - layout.left) / layout.wide);
      if (i < 0 || i >= n) return false;
      rank = i;
      tell();
      return true;
    };
    drawing.addEventListener("pointermove", pointed);
    drawing.addEventListener("click", (event) => { if (pointed(event)) choose(block.order[rank]); });
    drawing.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 10, PageDown: -10,
        Home: -n, End: n }[event.key];
      if (step === undefined) {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          choose(block.order[rank]);
        }
        return;
      }
      event.preventDefault();
      rank = Math.min(Math.max(rank + step, 0), n - 1);
      tell();
      draw();
    });
    ["focus", "blur"].forEach((kind) => drawing.addEventListener(kind, draw));
    document.addEventListener("chosen", (event) => { chosen = event.detail; draw(); });
    document.addEventListener("closed", () => { chosen = null; draw(); });
    drawing.setAttribute("aria-valuetext", `neuron ${map.neurons[block.order[0]]}`);
    drawings.push(draw);
  };

  const answers = () => {
    document.querySelectorAll("figure.neurons").forEach(answerFigure);
    document.querySelectorAll(".tuning-grid[data-block]").forEach((grid) => {
      const block = map.blocks.find((b) => b.name === grid.dataset.block);
      drawings.push(() => {
        const pictures = block.order.slice(0, 6).map((neuron) => {
          const group = groupOf(neuron);
          const { colour, marker } = styleOf(neuron);
          const title = `neuron ${map.neurons[neuron]}${group ? `, ${group}` : ""}`;
          const called = block.called?.[neuron];
          return tuningPicture(block.name, neuron, [sample(marker, colour, called, title)]);
        });
        grid.replaceChildren(...pictures.filter(Boolean));
      });
      grid.addEventListener("click", (event) => {
        const figure = event.target.closest("figure");
        if (figure) choose(Number(figure.dataset.neuron));
      });
    });
    const choices = [...document.querySelectorAll(".group-choice")];
    const regroup = () => {
      choices.forEach((choice) => { choice.value = grouping; });
      document.querySelectorAll(".by-group").forEach((part) => { part.hidden = part.dataset.column !== grouping; });
    };
    choices.forEach((choice) => choice.addEventListener("change", () => {
      grouping = choice.value;
      regroup();
      drawAll();
    }));
    regroup();
  };
