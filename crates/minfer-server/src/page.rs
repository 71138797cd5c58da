//! The chat page at `/`: a few static files that are part of the program. It talks to the server as any other client
//! does, over `/v1`; nothing here depends on a model, so it is there while one is loaded.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::app::App;

/// Nothing from elsewhere, nothing inline, no text that becomes markup, and no other site's frame around it.
const POLICY: &str = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// A file of the page.
#[derive(Clone, Copy)]
struct File {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

/// A script of the page's folder.
macro_rules! script {
    ($name:literal) => {
        File {
            path: concat!("/page/", $name),
            kind: "text/javascript; charset=utf-8",
            text: include_str!(concat!("page/", $name)),
        }
    };
}

const FILES: &[File] = &[
    File {
        path: "/",
        kind: "text/html; charset=utf-8",
        text: include_str!("page/index.html"),
    },
    File {
        path: "/page/style.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("page/style.css"),
    },
    File {
        path: "/page/panels.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("page/panels.css"),
    },
    File {
        path: "/page/icon.svg",
        kind: "image/svg+xml",
        text: include_str!("page/icon.svg"),
    },
    script!("app.js"),
    script!("alternatives.js"),
    script!("history.js"),
    script!("inline.js"),
    script!("markdown.js"),
    script!("messages.js"),
    script!("settings.js"),
    script!("stream.js"),
];

/// Whether this path is one of the page's: they hold no secret, and a browser asks for them before it has a key.
pub fn has(path: &str) -> bool {
    FILES.iter().any(|f| f.path == path)
}

/// Its paths.
pub fn routes() -> Router<Arc<App>> {
    let mut router = Router::new();
    for file in FILES {
        let tag = tag(file.text);
        let handler = async move |headers: HeaderMap| answer(file, &tag, &headers);
        router = router.route(file.path, get(handler));
    }
    router
}

/// Differs between different texts.
fn tag(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

/// The file, or only the word that it has not changed.
fn answer(file: &'static File, tag: &str, headers: &HeaderMap) -> Response {
    let known = headers.get_all(header::IF_NONE_MATCH).iter();
    let known = known.filter_map(|v| v.to_str().ok());
    let mut known = known.flat_map(|v| v.split(',')).map(str::trim);
    // A proxy that compresses makes a tag a weak one.
    let same = known.any(|k| k == "*" || k.trim_start_matches("W/") == tag);
    let mut response = match same {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, file.kind)], file.text).into_response(),
    };
    let mut put = |name, value: &'static str| {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    };
    // Asked for again each time: a new server's page must not meet an old one's scripts.
    put(header::CACHE_CONTROL, "no-cache");
    put(header::CONTENT_SECURITY_POLICY, POLICY);
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(header::REFERRER_POLICY, "no-referrer");
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}
