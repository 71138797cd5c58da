//! Measuring through the engine: what is counted, what is refused, and that it disturbs nobody.

mod tiny;

use minfer::Error;
use minfer::engine::{
    Engine, EngineError, EngineOptions, Event, Generate, Measure, Request, Task, Work,
};
use minfer::graph::KvType;
use minfer::sampling::SamplerParams;

fn options() -> EngineOptions {
    EngineOptions {
        n_seqs: 8,
        whole_windows: true,
        n_batch: 32,
        ..tiny::exact()
    }
}

fn submit(engine: &Engine, measure: Measure) -> Result<(), Error> {
    let (prompt, task) = (Vec::new(), Task::Measure(measure));
    engine.submit(Request::new(prompt, task)).map(drop)
}

#[test]
fn eight_sequences_in_lockstep_are_counted() {
    let engine = tiny::engine(&tiny::model("llama"), &options());
    let of = |n_seqs| Measure {
        n_seqs,
        depth: 40,
        n_gen: 16,
        repetitions: 3,
        ..Measure::default()
    };
    let (one, _) = tiny::measure(&engine, of(1));
    let (eight, _) = tiny::measure(&engine, of(8));
    assert_eq!((one.len(), eight.len()), (3, 3));
    for m in one.iter().chain(&eight) {
        assert!(m.elapsed.as_nanos() > 0);
        assert_eq!(m.allocations, 0, "nobody counted");
    }
    // Barriers do not depend on chance.
    let barriers: Vec<u64> = eight.iter().map(|m| m.counters.barriers).collect();
    assert!(
        barriers[0] > 0 && barriers.iter().all(|b| *b == barriers[0]),
        "{barriers:?}"
    );
    assert_eq!(barriers[0] % 16, 0, "each step has as many");
}

#[test]
fn what_a_measurement_leaves_disturbs_no_later_request() {
    let model = tiny::model("gemma3");
    let fresh = tiny::engine(&model, &options());
    let used = tiny::engine(&model, &options());
    let prompt: Vec<u32> = (1..100).collect();
    let greedy = || Generate {
        sampling: SamplerParams {
            temperature: 0.0,
            ..SamplerParams::default()
        },
        n_predict: Some(20),
        ..Generate::default()
    };
    let whole = Measure {
        n_seqs: 8,
        depth: 100,
        n_prompt: 50,
        n_gen: 300,
        sampling: Some(SamplerParams::default()),
        ..Measure::default()
    };
    let short = Measure {
        n_seqs: 2,
        depth: 120,
        n_gen: 1,
        logits: true,
        ..Measure::default()
    };
    let (_, want) = tiny::measure(&fresh, short.clone());
    let _ = tiny::measure(&used, whole.clone());
    // Sampled tokens were no made-up ones: their places are filled again.
    assert_eq!(tiny::measure(&used, short).1, want);
    let want = tiny::generate(&fresh, &prompt, greedy()).0;
    assert_eq!(tiny::generate(&used, &prompt, greedy()).0, want);
    let _ = tiny::measure(&used, whole);
}

#[test]
fn a_dropped_stream_ends_a_measurement() {
    let engine = tiny::engine(&tiny::model("llama"), &options());
    let endless = Measure {
        repetitions: usize::MAX,
        n_gen: 1,
        ..Measure::default()
    };
    let (prompt, task) = (Vec::new(), Task::Measure(endless));
    let stream = engine.submit(Request::new(prompt, task)).unwrap();
    assert!(matches!(stream.recv(), Some(Event::Measured(_))));
    drop(stream);
    assert_eq!(tiny::measure(&engine, Measure::default()).0.len(), 1);
}

#[test]
fn what_cannot_be_measured_is_refused_with_its_numbers() {
    let engine = tiny::engine(&tiny::model("llama"), &options());
    let refused = |m: Measure| submit(&engine, m).unwrap_err().to_string();
    let all = Measure::default;
    for (n_seqs, value) in [(0, "0"), (9, "9")] {
        let why = refused(Measure { n_seqs, ..all() });
        assert!(
            why.contains("n_seqs") && why.contains(value) && why.contains('8'),
            "{why}"
        );
    }
    let none = Measure { n_gen: 0, ..all() };
    assert!(refused(none).contains("n_prompt + n_gen is 0"));
    let never = Measure {
        repetitions: 0,
        ..all()
    };
    assert!(refused(never).contains("repetitions is 0"));
    let without_steps = Measure {
        n_prompt: 4,
        n_gen: 0,
        logits: true,
        ..all()
    };
    assert!(refused(without_steps).contains("n_gen is 0"));
    let long = Measure {
        depth: 500,
        ..all()
    };
    let why = refused(long);
    assert!(
        why.contains("500") && why.contains("628") && why.contains("512"),
        "{why}"
    );
    let huge = Measure {
        depth: usize::MAX,
        ..all()
    };
    assert!(matches!(
        submit(&engine, huge),
        Err(Error::Engine(EngineError::MeasureTooLong { .. }))
    ));
    let model = tiny::model("llama");
    for n_seqs in [0, 257] {
        let wrong = EngineOptions {
            n_seqs,
            ..options()
        };
        let why = Engine::new(model.clone(), wrong, &mut |_, _| {})
            .err()
            .unwrap();
        assert!(
            why.to_string().contains("n_seqs") && why.to_string().contains("256"),
            "{why}"
        );
    }
}

/// By hand, from the tiny model's own numbers.
#[test]
fn work_is_what_the_models_shape_says() {
    let model = tiny::model("llama");
    let h = model.hparams();
    let (n_q, n_kv) = (h.n_head * h.head_dim, h.n_head_kv * h.head_dim);
    let layer = 2 * h.n_embd * n_q + 2 * h.n_embd * n_kv + 3 * h.n_embd * h.n_ff;
    let head = h.n_embd * h.n_vocab;
    let norms = (2 * h.n_layer + 1) * h.n_embd;
    let of = |m: Measure| {
        Work::of(
            &model,
            &m,
            &EngineOptions {
                type_v: KvType::F16,
                ..options()
            },
        )
    };
    let decode = of(Measure {
        n_seqs: 8,
        depth: 100,
        n_gen: 2,
        ..Measure::default()
    });
    assert_eq!(decode.passes, 2);
    assert_eq!(decode.int8_ops, 0, "the file is F32");
    assert_eq!(
        decode.f32_ops as usize,
        2 * 8 * 2 * (h.n_layer * layer + head)
    );
    // The table: one row a token.
    let weights = 4 * (h.n_layer * layer + head + norms + 8 * h.n_embd);
    assert_eq!(decode.weight_bytes as usize, 2 * weights);
    assert_eq!(
        decode.kv_bytes as usize,
        8 * (101 + 102) * h.n_layer * n_kv * (4 + 2)
    );
    assert_eq!(
        decode.attention_ops as usize,
        8 * (101 + 102) * h.n_layer * n_q * 4
    );
    // Two chunks, of 32 and 8 rows; the last layer is past its KV only for the last row.
    let prefill = of(Measure {
        n_prompt: 40,
        n_gen: 0,
        ..Measure::default()
    });
    assert_eq!(prefill.passes, 2);
    let in_kv = 2 * h.n_embd * n_kv + h.n_embd * n_q;
    let ops = 40 * ((h.n_layer - 1) * layer + in_kv) + (layer - in_kv) + head;
    assert_eq!(prefill.f32_ops as usize, 2 * ops);
    let seen = (h.n_layer - 1) * (40 * 41 / 2) + 40;
    assert_eq!(prefill.attention_ops as usize, seen * n_q * 4);
    let read = (h.n_layer - 1) * (32 + 40) + 40;
    assert_eq!(prefill.kv_bytes as usize, read * n_kv * (4 + 2));
    // A window bounds what is read.
    let windowed = tiny::model("gemma3");
    let at = |depth| {
        Work::of(
            &windowed,
            &Measure {
                depth,
                n_gen: 1,
                ..Measure::default()
            },
            &options(),
        )
    };
    let (h, near, far) = (windowed.hparams(), at(300), at(301));
    let full = (far.kv_bytes - near.kv_bytes) as usize / (h.n_head_kv * h.head_dim * 8);
    assert!(
        full < h.n_layer,
        "{full} layers of {} see more at a greater depth",
        h.n_layer
    );
}
