  // Ranked neurons: sort by any column, take them along as CSV.
  const ranking = () => {
    const table = byId("neurons-table");
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const rowOf = {};
    rows.forEach((row) => { rowOf[row.dataset.neuron] = row; });
    body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) choose(Number(row.dataset.neuron));
    });
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
        const block = map.blocks.find((b) => b.name === head.dataset.block);
        if (block) {
          sortBy(block.name, block.scores, !down, block.order);
          body.replaceChildren(...order.map((neuron) => rowOf[neuron]));
          return;
        }
        const sorted = rows.slice().sort((a, b) => {
          const [x, y] = [valueOf(a, i), valueOf(b, i)];
          const less = typeof x === "number" && typeof y === "number"
            ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
          return (down ? -less : less) || a.dataset.neuron - b.dataset.neuron;
        });
        body.replaceChildren(...sorted);
      });
    });
    byId("download").addEventListener("click", () => {
      const quoted = (v) => (/[",\n]/.test(v) ? `"${String(v).replaceAll('"', '""')}"` : v);
      const columns = Object.entries(map.units).concat(map.blocks.flatMap((b) =>
        Object.entries({ score: b.scores, z: b.z, ...b.tested, connected: b.called, ...b.opinion })
          .filter(([, values]) => values)
          .map(([name, values]) => [`${name} ${b.name}`, values])))
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

