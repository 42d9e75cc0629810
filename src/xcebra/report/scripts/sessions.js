  // The page of several sessions: its figures need no script. All details are open in print.
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((d) => { d.open = true; });
  });
  document.documentElement.dataset.ready = "yes";
