// Light or dark: what the system prefers, or what was chosen here.
function theme(to) {
  if (to) document.documentElement.dataset.theme = to;
}
theme(localStorage.getItem("theme"));

export function turn() {
  const dark = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const to = dark === "dark" ? "light" : "dark";
  localStorage.setItem("theme", to);
  theme(to);
}
document.getElementById("theme").addEventListener("click", turn);
