  // What every part uses. Everything that the page shows is in the script element "numbers".
  const numbers = JSON.parse(document.getElementById("numbers").textContent);
  const byId = (id) => document.getElementById(id);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const show = (v) => (v === null || v === undefined ? "–"
    : v === 0 || (Math.abs(v) >= 0.001 && Math.abs(v) < 10000)
      ? String(Number(v.toPrecision(3))) : v.toExponential(2));
  const percent = (v) => (v < 0.0005 ? "0 or less" : `${(100 * v).toFixed(1)} %`);

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
  const titleOf = (b) => (b.role === "control" ? `${b.name} (controlled for)` : b.name);
  const columns = () => [
    ...map.blocks.map((b) => ({ title: b.name, values: b.scores, order: b.order })),
    ...map.latents.map((l) => ({ title: l.name, values: l.values, block: l.block })),
    ...Object.entries(map.truth).map(([name, known]) => ({ title: `${name} (truth)`, values: known })),
  ];
  // Blocks come with their order, because the scores in the page are rounded.
  const sortBy = (title, values, upwards = false, known = null) => {
    sortedBy = title;
    const sign = upwards ? 1 : -1;
    order = [...Array(n).keys()];
    if (known) order = upwards ? known.slice().reverse() : known.slice();
    else if (values) order.sort((a, b) => sign * ((values[a] ?? -1) - (values[b] ?? -1)) || a - b);
    document.dispatchEvent(new Event("sorted"));
  };

  // Groups of neurons: colour and marker of each, from one column of the units.
  const GROUPS = 6;
  let grouping = numbers.group_by ?? "";
  const groupOf = (neuron) => {
    const given = map.groups[grouping];
    return given ? given.names[given.index[neuron]] : "";
  };
  const styleOf = (neuron) => {
    const given = map.groups[grouping];
    if (!given) return { colour: "var(--group-0)", marker: 0 };
    const named = given.names.filter((name) => name !== "missing");
    const i = named.indexOf(groupOf(neuron));
    return i < 0 ? { colour: "var(--soft)", marker: 0 }
      : { colour: `var(--group-${i % GROUPS})`, marker: i % 7 };
  };

  // Elements of pictures; text is always set as text.
  const drawn = (name, attributes = {}, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    if (text !== "") element.textContent = text;
    return element;
  };
  const made = (name, attributes = {}, ...children) => {
    const element = document.createElement(name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    element.append(...children);
    return element;
  };
  // Round numbers between two ends, for the ticks of an axis.
  const ticks = (low, high, most = 5) => {
    const raw = (high - low) / most || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) {
      found.push(Number((i * step).toPrecision(6)));
    }
    return found;
  };

  // The neuron that the reader has chosen.
  const choose = (neuron) => {
    document.dispatchEvent(new CustomEvent("chosen", { detail: neuron }));
  };

