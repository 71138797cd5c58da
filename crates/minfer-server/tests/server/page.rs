//! The chat page's files.

use crate::harness::{Reply, Setup};

fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    let found = reply.headers.iter().find(|(k, _)| k == name);
    found.map(|(_, v)| v.as_str())
}

/// What lies between `before` and the next quote, each time.
fn quoted<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let rest = text.split(before).skip(1);
    rest.map(|r| r.split('"').next().unwrap()).collect()
}

#[test]
fn the_page_and_all_that_it_names_are_there_with_their_types() {
    let server = Setup::of(&["llama"]).start();
    let page = server.get("/");
    assert_eq!(page.status, 200);
    assert_eq!(
        header(&page, "content-type"),
        Some("text/html; charset=utf-8")
    );
    let mut names = quoted(&page.text, "href=\"");
    names.extend(quoted(&page.text, "src=\""));
    assert!(names.contains(&"/page/app.js"), "{names:?}");
    let mut to_visit: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let mut visited = Vec::new();
    while let Some(path) = to_visit.pop() {
        if visited.contains(&path) {
            continue;
        }
        let file = server.get(&path);
        assert_eq!(file.status, 200, "{path}");
        let kind = match path.rsplit('.').next() {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(header(&file, "content-type"), Some(kind), "{path}");
        // A script's imports are files of the page, too.
        let imports = quoted(&file.text, " from \"./").into_iter();
        to_visit.extend(imports.map(|name| format!("/page/{name}")));
        visited.push(path);
    }
    assert!(visited.len() >= 10, "{visited:?}");
    assert_eq!(server.get("/page/nothing.js").status, 404);
    assert_eq!(server.post("/", &serde_json::json!({})).status, 405);
}

#[test]
fn the_page_needs_no_key_and_what_it_asks_for_does() {
    let mut setup = Setup::of(&["llama"]);
    setup.server.guard.keys = vec!["sk".to_owned()];
    let server = setup.start();
    for path in ["/", "/page/app.js", "/page/style.css"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    for path in ["/v1/models", "/page/nothing.js"] {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
}

#[test]
fn nothing_comes_from_elsewhere_and_nothing_is_inline() {
    let server = Setup::of(&["llama"]).start();
    let page = server.get("/");
    let policy = header(&page, "content-security-policy").unwrap();
    let rules: Vec<&str> = policy.split(';').map(str::trim).collect();
    for rule in [
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(rules.contains(&rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(header(&page, "x-content-type-options"), Some("nosniff"));
    for inline in ["<style", " style=", "onclick=", "<script>", "https://"] {
        assert!(!page.text.contains(inline), "{inline}");
    }
}

#[test]
fn a_file_that_has_not_changed_is_not_sent_again() {
    let server = Setup::of(&["llama"]).start();
    let first = server.get("/page/app.js");
    let tag = header(&first, "etag").unwrap().to_owned();
    assert_eq!(header(&first, "cache-control"), Some("no-cache"));
    for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}")] {
        let again = ureq::get(format!("{}/page/app.js", server.url));
        let mut again = again.header("if-none-match", &known).call().unwrap();
        assert_eq!(again.status().as_u16(), 304, "{known}");
        assert_eq!(again.headers()["etag"], tag.as_str());
        assert_eq!(again.body_mut().read_to_string().unwrap(), "");
    }
    let other = ureq::get(format!("{}/page/app.js", server.url));
    let other = other.header("if-none-match", "\"x\"").call().unwrap();
    assert_eq!(other.status().as_u16(), 200);
    let style = server.get("/page/style.css");
    assert_ne!(header(&style, "etag"), Some(tag.as_str()));
}
