//! Tiny models of every architecture beside `transformers` (xtask/golden/tiny_models.py), in f32.

mod tiny;

use minfer::engine::EngineOptions;

#[test]
fn logits_of_all_positions_are_those_of_transformers() {
    for name in tiny::NAMES {
        let want = tiny::golden(name);
        let model = tiny::model(name);
        for fuse in [true, false] {
            let options = EngineOptions {
                fuse,
                ..tiny::exact()
            };
            let got: Vec<f32> = tiny::prompts()
                .iter()
                .flat_map(|p| tiny::logits(&model, &options, p))
                .collect();
            assert_eq!(got.len(), want.len(), "{name}");
            let (low, high) = want
                .iter()
                .fold((f32::MAX, f32::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
            let worst = want
                .iter()
                .zip(&got)
                .map(|(a, b)| (a - b).abs())
                .max_by(f32::total_cmp)
                .unwrap();
            assert!(
                worst <= 1e-4 * (high - low),
                "{name}, fuse {fuse}: off by {worst} of {}",
                high - low
            );
        }
    }
}
