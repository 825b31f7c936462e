// Puts the parts of the page that the daemon sends into their places. The page is whole without it.
"use strict";
(() => {
  const connection = document.getElementById("connection");
  const pause = document.getElementById("pause");
  const parts = [...document.querySelectorAll("[data-live]")];
  const retry = 15000; // milliseconds, where the browser does not try again by itself
  let source = null, timer = 0, paused = false;

  const show = (text, state) => {
    if (connection.textContent !== text) {
      connection.textContent = text;
    }
    connection.className = state;
  };

  const replace = (part, html) => {
    const selection = getSelection();
    if (!selection.isCollapsed && part.contains(selection.anchorNode)) {
      return; // somebody is copying from it
    }
    part.innerHTML = html;
  };

  const close = () => {
    clearTimeout(timer);
    if (source) {
      source.close();
      source = null;
    }
  };

  const connect = () => {
    close();
    source = new EventSource("events");
    for (const part of parts) {
      source.addEventListener(part.dataset.live, (e) => {
        show("live", "good");
        replace(part, e.data);
      });
    }
    source.addEventListener("step", () => show("live", "good"));
    source.onerror = () => {
      show("no connection: this is how it was", "bad");
      if (source.readyState === EventSource.CLOSED) { // refused: too many pages, or another key
        timer = setTimeout(connect, retry);
      }
    };
  };

  const update = () => {
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    if (paused || document.hidden) {
      close();
      show(paused ? "paused" : "not looked at", "");
    } else {
      show("connecting", "");
      connect();
    }
  };

  const toggle = () => {
    paused = !paused;
    update();
  };

  pause.hidden = false;
  pause.addEventListener("click", toggle);
  document.addEventListener("visibilitychange", update);
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input, textarea, select")) {
      if (e.key === "Escape" && e.target.matches("input")) {
        e.target.blur();
      }
      return;
    }
    const sections = document.querySelectorAll("main > section");
    if (e.key === "/") {
      document.getElementById("q").focus();
    } else if (e.key === "p") {
      toggle();
    } else if (e.key >= "1" && e.key <= String(sections.length)) {
      const section = sections[Number(e.key) - 1];
      section.scrollIntoView();
      section.focus({ preventScroll: true });
    } else {
      return;
    }
    e.preventDefault();
  });
  update();
})();
