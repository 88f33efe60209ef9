(async () => {
  const unpacked = (name) => {
    const text = document.getElementById("cosmic-" + name).textContent;
    const bytes = Uint8Array.fromBase64
      ? Uint8Array.fromBase64(text)
      : Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  };
  try {
    const front = ["style", "script"].map((name) => [name, unpacked(name).text()]);
    window.cosmicDocument = unpacked("document").arrayBuffer();
    window.cosmicDocument.catch(() => {}); // the script reports the error, once it runs
    for (const [name, text] of front) {
      const element = document.createElement(name);
      element.textContent = await text;
      document.head.append(element);
    }
  } catch (error) {
    document.getElementById("cosmic-start").textContent = "This page needs a newer browser: " + error;
  }
})();
