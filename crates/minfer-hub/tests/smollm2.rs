//! The built-in alias on the real sources: whichever of them can be reached.

use minfer_hub::{Hub, Silent};

#[test]
fn smollm2_is_fetched_or_found() {
    let hub = Hub::new().expect("a folder for models");
    let path = hub
        .resolve("smollm2", &mut Silent)
        .expect("one of its sources");
    assert_eq!(std::fs::metadata(&path).expect("a file").len(), 98_362_432);
    let list = hub.list().expect("a list");
    assert!(list.iter().any(|m| m.path == path));
}
