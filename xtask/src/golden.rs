//! `cargo xtask golden`: reference data of the tests, made again by the scripts that made it.

use std::path::Path;

use crate::venv;

/// The scripts' names, in order.
fn names(root: &Path) -> Result<Vec<String>, String> {
    venv::scripts(&root.join("xtask/golden"))
}

/// Prints each script's name and packages.
pub fn list(root: &Path) -> Result<(), String> {
    for name in names(root)? {
        let path = root.join("xtask/golden").join(format!("{name}.py"));
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
        println!("{name:<20} {}", venv::packages(&text)?.join(" "));
    }
    Ok(())
}

/// Runs one script; it writes its data files itself.
pub fn one(root: &Path, name: &str) -> Result<(), String> {
    let names = names(root)?;
    if !names.iter().any(|n| n == name) {
        return Err(format!(
            "no golden script `{name}`; there are: {}",
            names.join(", ")
        ));
    }
    let path = root.join("xtask/golden").join(format!("{name}.py"));
    venv::run(&mut venv::script(root, &path)?).map_err(|e| format!("golden {name}: {e}"))
}

/// Runs them all.
pub fn all(root: &Path) -> Result<(), String> {
    names(root)?.iter().try_for_each(|name| one(root, name))
}
