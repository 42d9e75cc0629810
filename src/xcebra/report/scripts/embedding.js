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

