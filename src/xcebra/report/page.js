"use strict";
// The page's moving parts. Everything it shows is in the script element "numbers".
(() => {
  const numbers = JSON.parse(document.getElementById("numbers").textContent);
  const byId = (id) => document.getElementById(id);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const show = (v) => (v === null ? "–" : Math.abs(v) >= 0.001 && Math.abs(v) < 10000
    ? String(Number(v.toPrecision(3))) : v.toExponential(2));

  // Colours: one sequence from the page's back to its strongest, one circle, one set of classes.
  const SEQUENCE = {
    light: [[253, 253, 252], [254, 216, 160], [252, 160, 108], [235, 96, 96], [178, 54, 122],
            [114, 31, 129], [58, 15, 110], [15, 8, 50]],
    dark: [[24, 26, 30], [48, 18, 92], [112, 30, 128], [176, 53, 123], [234, 94, 97],
           [253, 157, 106], [254, 214, 158], [252, 253, 220]],
  };
  const HUES = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const CLASSES = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb8855",
                   "#888888", "#117766", "#dd7700"];
  let printing = false;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const mode = () => (dark.matches && !printing ? "dark" : "light");
  const between = (stops, share) => {
    const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((c, i) => Math.round(c + (at - low) * (stops[low + 1][i] - c)));
  };
  const css = (rgb) => `rgb(${rgb[0]},${rgb[1]},${rgb[2]})`;
  const strength = (share) => between(SEQUENCE[mode()], share);
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

  // A canvas as sharp as the screen; returns its context and its size in the page's pixels.
  const sharp = (canvas, height) => {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth || 600;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return [context, width, height];
  };
  const drawings = [];
  const drawAll = () => drawings.forEach((draw) => draw());

  // One order of the neurons for the whole page.
  const map = numbers.map;
  const n = map.neurons.length;
  let order = [...Array(n).keys()];
  let sortedBy = "";
  const columns = () => [
    ...map.blocks.map((b) => ({ title: b.name, values: b.scores })),
    ...map.latents.map((l) => ({ title: l.name, values: l.values, block: l.block })),
    ...Object.entries(map.truth).map(([name, known]) => ({ title: `${name} (truth)`, values: known })),
  ];
  const sortBy = (title, values, upwards = false) => {
    sortedBy = title;
    const sign = upwards ? 1 : -1;
    order = [...Array(n).keys()];
    if (values) order.sort((a, b) => sign * ((values[a] ?? -1) - (values[b] ?? -1)) || a - b);
    document.dispatchEvent(new Event("sorted"));
  };

  // Neurons by blocks and latents.
  const heat = () => {
    const canvas = byId("map-canvas");
    const readout = byId("map-readout");
    const all = columns();
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
          c.fillStyle = css(strength(share));
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
        ` (rank ${cell[0] + 1} of ${n}${sortedBy ? ` by ${sortedBy}` : ""})`;
    };
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      const i = Math.floor((event.clientY - box.top - top) / row);
      const j = Math.floor((event.clientX - box.left - layout.left) / layout.wide);
      if (i < 0 || i >= n || j < 0 || j >= all.length) return;
      cell = [i, j];
      tell();
    };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("click", point);
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
                     PageUp: [-20, 0], PageDown: [20, 0], Home: [-n, 0], End: [n, 0] }[event.key];
      if (!step) {
        if (event.key === "Enter") sortBy(all[cell[1]].title, all[cell[1]].values);
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
    choice.append(new Option("as recorded", ""), ...all.map((c) => new Option(c.title, c.title)));
    choice.addEventListener("change", () => {
      sortBy(choice.value, all.find((c) => c.title === choice.value)?.values);
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

  // Neurons over time, with a slider.
  const course = () => {
    const over = numbers.over_time;
    const canvas = byId("time-canvas");
    const slider = byId("time-slider");
    const choice = byId("time-block");
    const readout = byId("time-readout");
    const decoded = {};
    Object.entries(over.blocks).forEach(([name, b]) => { decoded[name] = bytes(b.bytes); });
    choice.append(...Object.keys(over.blocks).map((name) => new Option(name, name)));
    slider.max = over.n_bins - 1;
    slider.value = Math.floor(over.n_bins / 2);
    const picture = document.createElement("canvas");
    const height = Math.max(120, Math.min(480, 4 * n));
    const paint = () => {
      picture.width = over.n_bins;
      picture.height = n;
      const c = picture.getContext("2d");
      const image = c.createImageData(over.n_bins, n);
      const data = decoded[choice.value];
      const table = Array.from({ length: 255 }, (_, v) => strength(v / 254));
      order.forEach((neuron, i) => {
        for (let t = 0; t < over.n_bins; t += 1) {
          const value = data[neuron * over.n_bins + t];
          const at = 4 * (i * over.n_bins + t);
          const [r, g, b] = value === 255 ? [128, 128, 128] : table[value];
          image.data.set([r, g, b, value === 255 ? 60 : 255], at);
        }
      });
      c.putImageData(image, 0, 0);
      draw();
    };
    const draw = () => {
      const [c, width] = sharp(canvas, height);
      c.imageSmoothingEnabled = false;
      c.drawImage(picture, 0, 0, width, height);
      const x = ((Number(slider.value) + 0.5) / over.n_bins) * width;
      c.strokeStyle = variable("--accent");
      c.lineWidth = 2;
      c.beginPath();
      c.moveTo(x, 0);
      c.lineTo(x, height);
      c.stroke();
    };
    const tell = () => {
      const t = Number(slider.value);
      const data = decoded[choice.value];
      const scale = over.blocks[choice.value].most / 254;
      const first = [...Array(n).keys()].filter((i) => data[i * over.n_bins + t] !== 255)
        .sort((a, b) => data[b * over.n_bins + t] - data[a * over.n_bins + t]).slice(0, 5)
        .map((i) => `${map.neurons[i]} (score ${show(data[i * over.n_bins + t] * scale)})`);
      const when = over.unit === "s" ? `${over.at[t]} s` : `sample ${over.at[t]}`;
      readout.textContent = first.length
        ? `at ${when}, top neurons for ${choice.value}: ${first.join(", ")}` : `at ${when}: not in the map`;
      slider.setAttribute("aria-valuetext", when);
      draw();
    };
    slider.addEventListener("input", tell);
    choice.addEventListener("change", () => { paint(); tell(); });
    canvas.addEventListener("pointerdown", (event) => {
      const box = canvas.getBoundingClientRect();
      slider.value = Math.floor(((event.clientX - box.left) / box.width) * over.n_bins);
      tell();
    });
    document.addEventListener("sorted", paint);
    drawings.push(paint);
    tell();
  };

  // The embedding, to be turned.
  const cloud = () => {
    const given = numbers.embedding;
    const canvas = byId("cloud-canvas");
    const view = byId("cloud-view");
    const colour = byId("cloud-colour");
    const legend = byId("cloud-legend");
    const points = {};
    Object.entries(given.views).forEach(([name, each]) => {
      points[name] = new Int16Array(bytes(each.points).buffer);
    });
    view.append(...Object.keys(points).map((name) => new Option(name, name)));
    colour.append(...given.colours.map((each, i) => new Option(each.name, i)));
    const shades = given.colours.map((each) => bytes(each.bytes));
    // Two latents are seen from above, three from the side.
    let turn = [0, 0];
    const face = () => { turn = given.views[view.value].flat ? [0, -Math.PI / 2] : [0.6, 0.4]; };
    face();
    const paintOf = (each, value) => {
      if (value === 255) return "rgba(128,128,128,0.35)";
      if (each.kind === "discrete") return CLASSES[value % CLASSES.length];
      if (each.kind === "circular") return `hsl(${(360 * value) / 254},65%,${mode() === "dark" ? 62 : 48}%)`;
      return css(between(HUES, value / 254));
    };
    const draw = () => {
      const height = Math.min(460, Math.max(260, canvas.clientWidth * 0.7));
      const [c, width] = sharp(canvas, height);
      const p = points[view.value];
      const each = given.colours[Number(colour.value)];
      const shade = shades[Number(colour.value)];
      const [a, b] = turn;
      const [ca, sa, cb, sb] = [Math.cos(a), Math.sin(a), Math.cos(b), Math.sin(b)];
      const size = (0.45 * Math.min(width, height)) / 32000;
      const seen = [];
      for (let i = 0; i < given.n; i += 1) {
        const [x, y, z] = [p[3 * i], p[3 * i + 1], p[3 * i + 2]];
        const x1 = ca * x + sa * y;
        const y1 = -sa * x + ca * y;
        seen.push([x1 * size, (cb * z - sb * y1) * size, sb * z + cb * y1, i]);
      }
      seen.sort((one, other) => other[2] - one[2]);
      seen.forEach(([x, y, depth, i]) => {
        c.fillStyle = paintOf(each, shade[i]);
        c.globalAlpha = 0.55 + 0.4 * (0.5 - depth / 110000);
        c.beginPath();
        c.arc(width / 2 + x, height / 2 - y, 2.4, 0, 7);
        c.fill();
      });
      c.globalAlpha = 1;
    };
    const explain = () => {
      const each = given.colours[Number(colour.value)];
      legend.replaceChildren();
      if (each.kind === "discrete") {
        legend.append(...each.classes.map((name, i) => {
          const item = document.createElement("span");
          item.style.setProperty("--colour", CLASSES[i % CLASSES.length]);
          item.textContent = name;
          return item;
        }));
      } else {
        const bar = document.createElement("canvas");
        bar.style.cssText = "width:9rem";
        const ends = each.ends.map((v) => document.createTextNode(` ${show(v)} `));
        legend.append(ends[0], bar, ends[1]);
        const [c, width] = sharp(bar, 11);
        for (let x = 0; x < width; x += 1) {
          c.fillStyle = paintOf(each, Math.round((254 * x) / width));
          c.fillRect(x, 0, 1, 11);
        }
      }
    };
    let from = null;
    canvas.addEventListener("pointerdown", (event) => {
      from = [event.clientX, event.clientY, ...turn];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) return;
      turn = [from[2] + (event.clientX - from[0]) / 120,
              Math.min(1.6, Math.max(-1.6, from[3] + (event.clientY - from[1]) / 120))];
      draw();
    });
    ["pointerup", "pointercancel"].forEach((kind) => canvas.addEventListener(kind, () => { from = null; }));
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
      if (!step) return;
      event.preventDefault();
      turn = [turn[0] + step[0], Math.min(1.6, Math.max(-1.6, turn[1] + step[1]))];
      draw();
    });
    view.addEventListener("change", () => { face(); draw(); });
    colour.addEventListener("change", () => { draw(); explain(); });
    drawings.push(draw, explain);
    canvas.dataset.ready = "yes";
  };

  // Ranked neurons: sort by any column, take them along as CSV.
  const ranking = () => {
    const table = byId("neurons-table");
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const valueOf = (row, i) => {
      const text = row.cells[i].dataset.value ?? row.cells[i].textContent;
      return text === "" || Number.isNaN(Number(text)) ? text : Number(text);
    };
    heads.forEach((head, i) => {
      head.querySelector("button").addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const down = now ? now !== "descending" : head.dataset.first !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const sorted = rows.slice().sort((a, b) => {
          const [x, y] = [valueOf(a, i), valueOf(b, i)];
          const less = typeof x === "number" && typeof y === "number"
            ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
          return down ? -less : less;
        });
        body.replaceChildren(...sorted);
        const block = map.blocks.find((b) => b.name === head.dataset.block);
        if (block) sortBy(block.name, block.scores, !down);
      });
    });
    byId("download").addEventListener("click", () => {
      const quoted = (v) => (/[",\n]/.test(v) ? `"${String(v).replaceAll('"', '""')}"` : v);
      const columns = map.blocks.flatMap((b) =>
        Object.entries({ score: b.scores, z: b.z, ...b.tested, ...b.opinion })
          .map(([name, values]) => [`${name} ${b.name}`, values]))
        .concat(Object.entries(map.explained).map(([what, v]) => [`${what} explained`, v]),
          Object.entries(map.truth).map(([name, known]) => [`${name} (truth)`, known]));
      const head = ["neuron", ...columns.map(([name]) => name), ...map.latents.map((l) => l.name)];
      const lines = order.map((i) => [map.neurons[i],
        ...columns.map(([, values]) => values[i] ?? ""),
        ...map.latents.map((l) => l.values[i] ?? "")]);
      const text = [head, ...lines].map((line) => line.map(quoted).join(",")).join("\n");
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([`${text}\n`], { type: "text/csv" }));
      link.download = "neurons.csv";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  };

  heat();
  if (numbers.over_time) course();
  if (numbers.embedding) cloud();
  ranking();
  if (map.blocks.length) sortBy(map.blocks[0].name, map.blocks[0].scores);
  drawAll();
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 100);
  });
  dark.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => {
    printing = true;
    document.querySelectorAll("details").forEach((d) => { d.open = true; });
    drawAll();
  });
  window.addEventListener("afterprint", () => { printing = false; drawAll(); });
  document.documentElement.dataset.ready = "yes";
})();
