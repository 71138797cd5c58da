//! `minfer pull` and `minfer list`.

use minfer_hub::Hub;
use serde_json::json;

use crate::args::{ListArgs, PullArgs};
use crate::models;
use crate::output::{Outcome, note, print_line};

/// Fetches what the cache lacks or has with other bytes, and prints the model's path.
pub fn pull(a: &PullArgs) -> Outcome {
    models::known(&a.model.model)?;
    let path = models::pull(&a.model.model)?;
    print_line(path.display())
}

/// The cached models, by name.
pub fn list(a: &ListArgs) -> Outcome {
    let entries = Hub::new()?.list()?;
    if a.json {
        let all: Vec<_> = entries
            .iter()
            .map(|e| json!({ "name": e.name, "size": e.size, "path": e.path }))
            .collect();
        return print_line(serde_json::Value::from(all));
    }
    if entries.is_empty() {
        note("no models in the cache; `minfer pull smollm2` fetches one");
    }
    for e in &entries {
        print_line(format_args!(
            "{:<56} {:>9.1} MB",
            e.name,
            e.size as f64 / 1e6
        ))?;
    }
    Ok(())
}
