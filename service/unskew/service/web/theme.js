// Before anything is painted: the theme that was chosen here. "system" is what the browser prefers.
"use strict";
(() => {
  const chosen = localStorage.getItem("unskew-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
