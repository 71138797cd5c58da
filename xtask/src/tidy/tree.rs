//! The project's files as the rules see them: path, text, and Rust code without comments.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::blank::blank;

/// One file that is tracked (or would be: untracked and not ignored).
pub struct Source {
    /// Path from the root, with forward slashes.
    pub path: String,
    /// The file's text; empty for files that are not UTF-8.
    pub text: String,
    /// For `.rs` files, the text with comments and the insides of literals turned to spaces, line
    /// for line and byte for byte; empty for other files.
    pub code: String,
}

impl Source {
    fn read(root: &Path, path: String) -> std::io::Result<Source> {
        let text = String::from_utf8(std::fs::read(root.join(&path))?).unwrap_or_default();
        let code = if path.ends_with(".rs") {
            blank(&text)
        } else {
            String::new()
        };
        Ok(Source { path, text, code })
    }

    /// The file's extension, or its name where it has none.
    pub fn kind(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or("");
        name.rsplit('.').next().unwrap_or("")
    }

    /// The line (from 1) on which byte `at` lies.
    pub fn line_of(&self, at: usize) -> usize {
        self.text
            .as_bytes()
            .iter()
            .take(at)
            .filter(|b| **b == b'\n')
            .count()
            + 1
    }
}

/// All files below a root.
pub struct Tree {
    /// Files by path.
    pub files: BTreeMap<String, Source>,
}

impl Tree {
    /// The files git tracks, and those it would track: untracked ones that no rule ignores.
    pub fn from_git(root: &Path) -> Result<Tree, String> {
        let out = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root)
            .output()
            .map_err(|e| format!("git ls-files: {e}"))?;
        if !out.status.success() {
            return Err(format!(
                "git ls-files: {}",
                String::from_utf8_lossy(&out.stderr)
            ));
        }
        let names = String::from_utf8_lossy(&out.stdout);
        // A file deleted but not yet staged is still listed.
        let paths = names
            .split('\0')
            .filter(|p| !p.is_empty() && root.join(p).is_file());
        Tree::read(root, paths.map(str::to_owned).collect())
    }

    /// Every file below `root`: for trees made by tests.
    #[cfg(test)]
    pub fn from_dir(root: &Path) -> Result<Tree, String> {
        fn walk(dir: &Path, root: &Path, paths: &mut Vec<String>) -> std::io::Result<()> {
            for entry in std::fs::read_dir(dir)? {
                let path = entry?.path();
                if path.is_dir() {
                    walk(&path, root, paths)?;
                } else if let Ok(below) = path.strip_prefix(root) {
                    paths.push(below.to_string_lossy().replace('\\', "/"));
                }
            }
            Ok(())
        }
        let mut paths = Vec::new();
        walk(root, root, &mut paths).map_err(|e| format!("{}: {e}", root.display()))?;
        Tree::read(root, paths)
    }

    fn read(root: &Path, paths: Vec<String>) -> Result<Tree, String> {
        let mut files = BTreeMap::new();
        for path in paths {
            let source = Source::read(root, path.clone()).map_err(|e| format!("{path}: {e}"))?;
            files.insert(path, source);
        }
        Ok(Tree { files })
    }

    /// The Rust files, in order.
    pub fn rust(&self) -> impl Iterator<Item = &Source> {
        self.files.values().filter(|f| f.path.ends_with(".rs"))
    }
}
