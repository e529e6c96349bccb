// Sets the theme before anything is drawn. The rest is in duly.js.
try {
  const chosen = localStorage.getItem("duly-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* no storage: the system's theme is fine */ }
