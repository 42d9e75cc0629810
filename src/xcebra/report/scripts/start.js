  // Start: draw everything, and again when the page changes its size or its colours.
  panel();
  answers();
  heat();
  if (numbers.over_time) course();
  if (numbers.embedding) cloud();
  ranking();
  if (map.blocks.length) sortBy(map.blocks[0].name, map.blocks[0].scores, false, map.blocks[0].order);
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
