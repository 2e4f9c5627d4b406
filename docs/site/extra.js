// What axe-core asks for: a keyboard scrolls what is wider than its place, and each button's group has a name.
document$.subscribe(() => {
  const name = () => {
    document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach(it => it.setAttribute("tabindex", "0"));
    document.querySelectorAll(".md-code__nav").forEach((it, n) => it.setAttribute("aria-label", `Code block ${n + 1}`));
  };
  name();
  new MutationObserver(name).observe(document.body, { childList: true, subtree: true });
});
