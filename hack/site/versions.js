// Fills the list of versions of each page, and goes to the same page of the chosen one.
(function (root, versions) {
  const select = document.getElementById("version");
  const current = select.value;
  select.replaceChildren(
    ...versions.map((v) => new Option(v.name, root + v.folder, v.name === current, v.name === current)),
  );
  select.addEventListener("change", async () => {
    const home = select.value;
    const page = home + location.pathname.slice(select.dataset.home.length);
    const found = await fetch(page, { method: "HEAD" }).then((r) => r.ok, () => false);
    location.href = found ? page : home;
  });
})
