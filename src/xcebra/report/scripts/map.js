  // Neurons by blocks and latents.
  const heat = () => {
    const canvas = byId("map-canvas");
    const readout = byId("map-readout");
    const all = columns();
    // Scores that must not be read are grey, and the reason is given.
    const doubtOf = (column) => map.blocks.find((b) => b.name === (column.block ?? column.title))?.doubt;
    const grey = (share) => `rgba(128,128,128,${(0.08 + 0.5 * Math.min(Math.max(share, 0), 1)).toFixed(2)})`;
    const most = {};
    map.blocks.forEach((b) => {
      most[b.name] = Math.max(...b.scores, 1e-30);
      const own = map.latents.filter((l) => l.block === b.name);
      own.forEach((l) => { most[l.name] = Math.max(...own.flatMap((o) => o.values), 1e-30); });
    });
    const row = Math.max(2, Math.min(16, Math.floor(640 / n)));
    const top = 92;
    let cell = [0, 0];
    let layout = null;
    const draw = () => {
      const [c, width, height] = sharp(canvas, top + row * n + 4);
      const names = row >= 10;
      c.font = "11px system-ui, sans-serif";
      const left = names ? Math.min(110, 8 + Math.max(...map.neurons.map((t) => c.measureText(t).width))) : 8;
      const wide = Math.min(64, (width - left - 40) / all.length);
      layout = { left, wide };
      c.fillStyle = variable("--soft");
      all.forEach((column, j) => {
        c.save();
        c.translate(left + (j + 0.6) * wide, top - 6);
        c.rotate(-Math.PI / 4);
        c.fillText(column.title.slice(0, 18), 0, 0);
        c.restore();
      });
      order.forEach((neuron, i) => {
        if (names) {
          c.fillStyle = variable("--soft");
          c.fillText(map.neurons[neuron], 2, top + (i + 0.5) * row + 4, left - 6);
        }
        all.forEach((column, j) => {
          const value = column.values[neuron];
          const share = value === null ? 0 : value / (most[column.title] ?? 1);
          c.fillStyle = doubtOf(column) ? grey(share) : css(strength(share));
          const gap = j === map.blocks.length || j === map.blocks.length + map.latents.length ? 3 : 0;
          c.fillRect(left + j * wide + gap, top + i * row, wide - 1 - gap, row - (row > 5 ? 1 : 0));
        });
      });
      c.strokeStyle = variable("--accent");
      c.lineWidth = 2;
      if (document.activeElement === canvas) {
        c.strokeRect(left + cell[1] * wide, top + cell[0] * row, wide - 1, Math.max(row, 3));
      }
    };
    const tell = () => {
      const neuron = order[cell[0]];
      const column = all[cell[1]];
      readout.textContent =
        `neuron ${map.neurons[neuron]}, ${column.title}: ${show(column.values[neuron])}` +
        ` (rank ${cell[0] + 1} of ${n}${sortedBy ? ` by ${sortedBy}` : ""})` +
        `${doubtOf(column) ? `; ${doubtOf(column)}` : ""}`;
    };
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      const i = Math.floor((event.clientY - box.top - top) / row);
      const j = Math.floor((event.clientX - box.left - layout.left) / layout.wide);
      if (i < 0 || i >= n || j < 0 || j >= all.length) return false;
      cell = [i, j];
      tell();
      return true;
    };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("click", (event) => {
      if (point(event)) choose(order[cell[0]]);
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
                     PageUp: [-20, 0], PageDown: [20, 0], Home: [-n, 0], End: [n, 0] }[event.key];
      if (!step) {
        const { title, values, order: known } = all[cell[1]];
        if (event.key === "Enter") sortBy(title, values, false, known);
        if (event.key === " ") {
          event.preventDefault();
          choose(order[cell[0]]);
        }
        return;
      }
      event.preventDefault();
      cell = [Math.min(Math.max(cell[0] + step[0], 0), n - 1),
              Math.min(Math.max(cell[1] + step[1], 0), all.length - 1)];
      draw();
      tell();
    });
    ["focus", "blur"].forEach((kind) => canvas.addEventListener(kind, draw));
    const choice = byId("map-order");
    choice.append(new Option("as recorded", ""), ...all.map((c) => {
      const block = map.blocks.find((b) => b.name === c.title);
      return new Option(block ? titleOf(block) : c.title, c.title);
    }));
    choice.addEventListener("change", () => {
      const found = all.find((c) => c.title === choice.value);
      sortBy(choice.value, found?.values, false, found?.order);
    });
    document.addEventListener("sorted", () => { choice.value = sortedBy; draw(); });
    drawings.push(draw, () => {
      const [c, width, height] = sharp(byId("map-scale"), 11);
      for (let x = 0; x < width; x += 1) {
        c.fillStyle = css(strength(x / width));
        c.fillRect(x, 0, 1, height);
      }
    });
  };

