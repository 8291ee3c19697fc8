// Signing in: the token goes to the service once, in a body; what stays is a cookie that scripts cannot read.

import { embedded, here, post } from "./api.js";
import { $ } from "./dom.js";

document.documentElement.classList.toggle("embed", embedded);
$("token").focus();
$("signin").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("problem").textContent = "";
  try {
    await post("/api/session", { token: $("token").value.trim() });
    const back = sessionStorage.getItem("whatelse-back");
    sessionStorage.removeItem("whatelse-back");
    location.assign(back?.startsWith("/") && !back.startsWith("//") ? back : here("/"));
  } catch (refused) {
    $("token").value = "";
    $("token").focus();
    $("problem").textContent = refused.message;
  }
});
