//! Sites in a real browser: how it shows awkward names, what it runs, and what it keeps from other sites.

use std::collections::HashSet;
use std::process::Command;

use serde_json::Value;

use crate::support::configured::Configured;
use crate::support::{Site, access_lines};

/// Names that mean something else if they are not escaped. No slash: no file has one.
const NAMES: &[&str] = &[
    "\"><script>parent.harmed = 1<",
    "<img src=x onerror=parent.harmed=1>",
    "&lt;b&gt;",
    "100%25 ?a=b#c.txt",
    "javascript:parent.harmed=1",
    "it's.txt",
    "tür 日本語.txt",
    "\u{202e}gpj.exe",
    "a..%2f..%2fsecret",
    "\\evil.example",
];

/// Looks at the other site's pages as a reader would, and writes down what it finds.
const DRIVER: &str = r#"<!doctype html><pre id="found"></pre><script>
const frame = (url) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.onload = () => { frame.onload = null; done(frame); };
  frame.src = url;
  document.body.append(frame);
});
const outcome = async (url, options) => {
  try { return await (await fetch(url, options)).text(); } catch (error) { return "refused"; }
};
(async () => {
  const found = {};
  const other = new URLSearchParams(location.search).get("other");
  const listing = (await frame("/pub/")).contentDocument;
  found.style = getComputedStyle(listing.querySelector("h1")).fontWeight;
  const links = [...listing.querySelectorAll("tr.file a")];
  found.names = links.map((link) => link.textContent);
  found.contents = await Promise.all(links.map((link) => outcome(link.href)));
  found.elements = listing.querySelectorAll("script, img, b").length;
  await outcome(links[0].href);

  const missing = await frame("/closed/");
  found.error = missing.contentDocument.querySelector("h1").textContent;
  found.status = (await fetch("/closed/")).status;

  const deep = await frame("/app/users/john.doe?tab=2");
  found.app = [deep.contentDocument.title];
  await new Promise((done) => { deep.onload = done; deep.contentWindow.location.reload(); });
  found.app.push(deep.contentDocument.title);
  found.script = (await fetch("/app/gone.js")).status;

  found.allowed = await outcome(other + "/open/data.json");
  found.preflight = await outcome(other + "/open/data.json", { headers: { "X-Own": "1" } });
  found.preflightRefused = await outcome(other + "/open/data.json", { headers: { "X-Other": "1" } });
  found.method = await outcome(other + "/open/data.json", { method: "DELETE" });
  found.refused = await outcome(other + "/closed/data.json");
  found.harmed = window.harmed === undefined ? "no" : "yes";
  document.getElementById("found").textContent = JSON.stringify(found);
})().catch((error) => { document.getElementById("found").textContent = JSON.stringify({ error: String(error) }); });
</script>"#;

#[test]
fn what_a_browser_makes_of_it() {
    let site = Site::new();
    NAMES.iter().for_each(|name| drop(site.add(&format!("pub/{name}"), name)));
    site.add("driver.html", DRIVER);
    site.add("403.html", "<h1>not for you</h1>");
    site.add("index.html", "<!doctype html><script>document.title = location.pathname + location.search</script>");
    let shown = Configured::serve(
        site,
        "security_headers = 'basic'\nerror_pages = { 403 = '/403.html' }\nfallback = '/index.html'\n\
         route = [{ path = '/pub/', listing = true }, { path = '/closed/', access = { deny = ['127.0.0.0/8'] } }]\n",
    );
    let other = Site::new();
    other.add("open/data.json", "\"open\"");
    other.add("closed/data.json", "\"closed\"");
    let origin = format!("https://{}", shown.server.address());
    let other = Configured::serve(
        other,
        &format!("route = [{{ path = '/open/', cors = {{ origins = ['{origin}'], headers = ['X-Own'] }} }}]\n"),
    );

    let found = in_browser(&format!("{origin}/driver.html?other=https://{}", other.server.address()));

    let mut names: Vec<&str> = found["names"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    let mut contents: Vec<&str> =
        found["contents"].as_array().expect("contents").iter().filter_map(Value::as_str).collect();
    let mut files = NAMES.to_vec();
    // Each link leads to its own file, and only there.
    for (name, content) in names.iter().zip(&contents) {
        assert_eq!(name.replace("\\u{202e}", "\u{202e}"), *content);
    }
    files.sort_unstable();
    contents.sort_unstable();
    names.sort_unstable();
    assert_eq!(contents, files);
    assert!(names.contains(&"\\u{202e}gpj.exe"), "{names:?}");
    for (key, expected) in [
        ("elements", Value::from(0)),
        ("harmed", "no".into()),
        // The policy lets the page's own style in.
        ("style", "600".into()),
        ("error", "not for you".into()),
        ("status", 403.into()),
        ("app", ["/app/users/john.doe?tab=2"; 2].as_slice().into()),
        ("script", 404.into()),
        ("allowed", "\"open\"".into()),
        ("preflight", "\"open\"".into()),
        ("preflightRefused", "refused".into()),
        ("method", "refused".into()),
        ("refused", "refused".into()),
    ] {
        assert_eq!(found[key], expected, "{key}: {found}");
    }
}

/// A page with 200 images, and what the browser says of each: its number, its protocol, when it was asked for and when it was there, in milliseconds.
const GALLERY: &str = r#"<!doctype html><link rel="icon" href="data:,"><pre id="found"></pre><body><script>
const images = Array.from({ length: 200 }, (_, number) => {
  const image = new Image();
  image.src = `i/${number}.svg`;
  document.body.append(image);
  return image;
});
addEventListener("load", () => {
  const timings = performance.getEntriesByType("resource").map(({ name, nextHopProtocol, requestStart, responseEnd }) =>
    [Number(/(\d+)\.svg$/.exec(name)[1]), nextHopProtocol, requestStart, responseEnd]);
  const shown = images.filter((image) => image.naturalWidth === 8).length;
  document.getElementById("found").textContent = JSON.stringify({ shown, timings });
});
</script>"#;

#[test]
fn a_page_of_200_images_comes_over_one_connection() {
    let site = Site::new();
    site.add("index.html", GALLERY);
    let image = "<svg xmlns='http://www.w3.org/2000/svg' width='8' height='8'><rect width='8' height='8'/></svg>";
    for number in 0..200 {
        site.add(&format!("i/{number}.svg"), image);
    }
    let gallery = Configured::serve(site, "");
    let found = in_browser(&format!("https://{}/", gallery.server.address()));
    assert_eq!(found["shown"], 200, "{found}");
    let timings = found["timings"].as_array().expect("a list");
    // The waterfall; shown with --nocapture.
    timings.iter().for_each(|timing| println!("{timing}"));
    assert!(timings.len() == 200 && timings.iter().all(|timing| timing[1] == "h2"), "{found}");
    let lines = access_lines(&gallery.server, 201);
    let peers: HashSet<&str> =
        lines.iter().filter(|line| line.get("target").contains("/i/")).map(|line| line.get("peer")).collect();
    assert_eq!(peers.len(), 1, "{peers:?}");
}

/// Opens a page, and returns what it writes down.
#[track_caller]
fn in_browser(url: &str) -> Value {
    let profile = tempfile::tempdir().expect("a directory");
    let output = Command::new("timeout")
        .args([
            "60",
            "chromium",
            "--headless",
            "--no-sandbox",
            "--ignore-certificate-errors",
            "--disable-gpu",
            "--no-first-run",
        ])
        .args([
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--virtual-time-budget=30000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url)
        .output()
        .expect("timeout is a tool of every Debian");
    let page = String::from_utf8_lossy(&output.stdout);
    let found = page.split("<pre id=\"found\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let found = found
        .unwrap_or_else(|| panic!("chromium: {}: {page}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&found).unwrap_or_else(|error| panic!("{error}: {found:?}"))
}
