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
      const { doubt } = map.blocks.find((b) => b.name === choice.value);
      if (doubt) readout.textContent = `at ${when}: ${doubt}`;
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

