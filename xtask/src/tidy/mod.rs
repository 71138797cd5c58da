//! `cargo xtask tidy`: the house rules that the compiler does not check.
//!
//! A rule is a function from the tree to its findings. Each has tests that show that it can fail.

mod blank;
mod docs;
mod imports;
mod lints;
mod safety;
mod text;
mod tree;

#[cfg(test)]
mod tests;

use std::path::Path;

pub use tree::{Source, Tree};

/// One broken rule at one place.
pub struct Finding {
    /// Path from the root.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// The rule's name.
    pub rule: &'static str,
    /// What is wrong, and where it helps, the way out.
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.path, self.line, self.rule, self.what
        )
    }
}

/// A rule adds what it finds wrong in the tree.
type Rule = fn(&Tree, &mut Vec<Finding>);

const RULES: &[Rule] = &[
    text::size,
    text::workplace,
    text::unfinished,
    text::golden_headers,
    safety::safety,
    imports::rooms,
    imports::crates,
    imports::banned,
    lints::block_parameters,
    lints::denied_lints,
    lints::undocumented,
    docs::links,
    docs::adr_status,
];

/// Everything that is wrong in `tree`, by path and line.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for rule in RULES {
        rule(tree, &mut found);
    }
    found.sort_by(|a, b| (&a.path, a.line, a.rule).cmp(&(&b.path, b.line, b.rule)));
    found
}

/// The command: prints the findings; an error when there are any.
pub fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::from_git(root)?;
    let found = check(&tree);
    for finding in &found {
        println!("{finding}");
    }
    match found.len() {
        0 => {
            println!(
                "tidy: {} files, {} rules, nothing found",
                tree.files.len(),
                RULES.len()
            );
            Ok(())
        }
        n => Err(format!("tidy: {n} found")),
    }
}
