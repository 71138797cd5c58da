//! Rules on documents: links lead somewhere, decisions say where they stand.

use super::{Finding, Tree};

/// Every relative link in a Markdown file leads to a file or a folder.
pub fn links(tree: &Tree, found: &mut Vec<Finding>) {
    for file in tree.files.values().filter(|f| f.path.ends_with(".md")) {
        let mut fenced = false;
        for (n, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            }
            if fenced {
                continue;
            }
            for target in targets(line) {
                if !resolves(tree, &file.path, target) {
                    let what = format!("`{target}` leads nowhere");
                    found.push(Finding {
                        path: file.path.clone(),
                        line: n + 1,
                        rule: "links",
                        what,
                    });
                }
            }
        }
    }
}

/// The targets of `[text](target)` on a line that lie in the tree.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next())
        .filter(|target| {
            let elsewhere = ["http:", "https:", "mailto:", "#"];
            !target.is_empty() && !elsewhere.iter().any(|start| target.starts_with(start))
        })
}

/// Whether `target`, seen from the file `from`, is a tracked file or a folder of such.
fn resolves(tree: &Tree, from: &str, target: &str) -> bool {
    let path = target.split('#').next().unwrap_or("");
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return false;
                }
            }
            name => parts.push(name),
        }
    }
    let path = parts.join("/");
    let folder = format!("{path}/");
    path.is_empty()
        || tree.files.contains_key(&path)
        || tree.files.keys().any(|k| k.starts_with(&folder))
}

/// Every decision record has a line `Status: …`.
pub fn adr_status(tree: &Tree, found: &mut Vec<Finding>) {
    let adr = |path: &str| path.starts_with("docs/adr/") && path.ends_with(".md");
    for file in tree
        .files
        .values()
        .filter(|f| adr(&f.path) && !f.path.ends_with("README.md"))
    {
        let status = file.text.lines().any(|line| {
            let line = line.trim_start_matches(['#', '-', '*', ' ']);
            line.starts_with("Status:") || line.starts_with("Status**:")
        });
        if !status {
            let what = "no line `Status: …`".to_owned();
            found.push(Finding {
                path: file.path.clone(),
                line: 1,
                rule: "adr",
                what,
            });
        }
    }
}
