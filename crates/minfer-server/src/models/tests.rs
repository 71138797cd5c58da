//! Models that come and go at once.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use minfer::engine::{EngineOptions, Model};

use super::*;

const TINY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../minfer/tests/data/tiny_models/llama.gguf"
);

/// A tiny model under three names, and how often it was loaded.
fn three(residency: Residency) -> (Models, Arc<AtomicUsize>) {
    let loads = Arc::new(AtomicUsize::new(0));
    let counted = loads.clone();
    let loader = Loader::new(move |spec, room| {
        counted.fetch_add(1, Ordering::SeqCst);
        room(1)?;
        let model = Model::open(Path::new(spec)).map_err(|e| e.to_string())?;
        let options = EngineOptions {
            n_ctx: 64,
            n_threads: Some(1),
            ..EngineOptions::default()
        };
        Engine::new(model, options, &mut |_, _| {}).map_err(|e| e.to_string())
    });
    let names = ["first", "second", "third"].map(|id| ModelName {
        id: id.to_owned(),
        spec: TINY.to_owned(),
    });
    (Models::new(names.into(), residency, loader), loads)
}

/// Waits until a model is asked for, and then a moment, in which it could be loaded.
fn asked_for(models: &Models, slot: usize) {
    let began = Instant::now();
    while !matches!(models.0.lock().slots.get(slot), Some(Slot::Loading(..))) {
        assert!(began.elapsed() < Duration::from_secs(60), "nobody asks");
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(100));
}

/// However many come at once, and whoever finds it going already. (An unload that looked and then took hold of the model could load it in between; it takes
/// luck to see that here.)
#[test]
fn unloading_loads_nothing() {
    const ROUNDS: usize = 300;
    const AT_ONCE: usize = 4;
    let (models, loads) = three(Residency::default());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let together = std::sync::Barrier::new(AT_ONCE);
    for _ in 0..ROUNDS {
        drop(runtime.block_on(models.get(None)).unwrap());
        std::thread::scope(|s| {
            for _ in 0..AT_ONCE {
                s.spawn(|| {
                    together.wait();
                    runtime.block_on(models.unload("first")).unwrap();
                });
            }
        });
        // Whoever loaded it may have held it for a moment yet.
        let began = Instant::now();
        while !models.loaded().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(60), "it stays");
            models.0.unload_due();
        }
    }
    assert_eq!(loads.load(Ordering::SeqCst), ROUNDS);
}

/// With limits and without: two copies of a model may be more than there is room for.
#[test]
fn a_model_waits_for_its_own_former_copy() {
    let limited = Residency {
        memory: Some(1 << 40),
        ..Residency::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for residency in [Residency::default(), limited] {
        let (models, loads) = three(residency);
        drop(runtime.block_on(models.get(None)).unwrap());
        let gone = models.0.take(&mut models.0.lock(), 0).unwrap();
        std::thread::scope(|s| {
            let again = s.spawn(|| runtime.block_on(models.get(None)).map(drop));
            asked_for(&models, 0);
            assert_eq!(loads.load(Ordering::SeqCst), 1, "it waits");
            models.0.end(gone);
            again.join().unwrap().unwrap();
        });
        assert_eq!(loads.load(Ordering::SeqCst), 2);
    }
}

/// A model that is on its way out makes the room: no other follows it.
#[test]
fn what_is_going_anyway_makes_the_room() {
    let residency = Residency {
        max: Some(2),
        ..Residency::default()
    };
    let (models, loads) = three(residency);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let get = |name| drop(runtime.block_on(models.get(Some(name))).unwrap());
    get("first");
    get("second");
    let gone = models.0.take(&mut models.0.lock(), 0).unwrap();
    std::thread::scope(|s| {
        let third = s.spawn(|| get("third"));
        asked_for(&models, 2);
        assert_eq!(loads.load(Ordering::SeqCst), 2, "it waits");
        models.0.end(gone);
        third.join().unwrap();
    });
    let loaded: Vec<String> = models.loaded().iter().map(|l| l.id.clone()).collect();
    assert_eq!(loaded, ["second", "third"]);
}
