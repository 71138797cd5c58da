//! Pages between passes, and keys turned where they lie.

use super::backends::{Claims, TestBackend};
use super::execution::{partial_claims, run, scheduler};
use super::toy::{Batch, N_VOCAB, Toy, context, params};
use crate::graph::reference::{Decoded, Reference, decode_f32};
use crate::graph::*;

fn shift_params(pages: usize) -> GraphParams {
    GraphParams {
        kind: GraphKind::KvShift,
        ..params(pages, 1, true)
    }
}

fn shift(
    scheduler: &mut Scheduler,
    toy: &Toy,
    [deltas, full, windowed]: [&[i32]; 3],
) -> Result<(), GraphError> {
    let inputs = BatchInputs {
        positions: deltas,
        pages_full: full,
        pages_windowed: windowed,
        ..BatchInputs::default()
    };
    let params = shift_params(deltas.len());
    scheduler.forward(&params, &|p| toy.build(p), &inputs, None)
}

fn devices() -> Vec<(&'static str, Vec<TestBackend>)> {
    let all = Claims::everything;
    let both = vec![
        TestBackend::foreign(partial_claims()),
        TestBackend::plain(all()),
    ];
    vec![
        ("plain", vec![TestBackend::plain(all())]),
        ("foreign", vec![TestBackend::foreign(all())]),
        ("a layer on each", both),
    ]
}

/// 40 positions of one sequence: pages 4 and 1 of the full layer, 2 and 0 of the windowed one.
fn prompt() -> Batch {
    let rows: Vec<(i32, i32)> = (0..40).map(|s| (0, s)).collect();
    Batch::of(&rows)
}

/// The next token of that sequence.
fn decode() -> Batch {
    Batch::of(&[(0, 40)])
}

fn pages(scheduler: &mut Scheduler, kind: LayerKind, pages: &[u32]) -> Vec<Vec<u8>> {
    let read = |p: &u32| {
        let mut out = Vec::new();
        scheduler.kv_read(kind, *p, &mut out).unwrap();
        out
    };
    pages.iter().map(read).collect()
}

#[test]
fn a_sequence_goes_on_from_copied_and_from_written_pages() {
    let toy = Toy::new();
    for (name, backends) in devices() {
        let mut scheduler = scheduler(&toy, backends);
        run(&mut scheduler, &toy, &prompt(), true);
        let want = run(&mut scheduler, &toy, &decode(), true);
        // The pages it had become garbage once they are elsewhere.
        let saved = pages(&mut scheduler, LayerKind::Windowed, &[2, 0]);
        for (from, to) in [(4, 0), (1, 3)] {
            scheduler.kv_copy(LayerKind::Full, from, to).unwrap();
        }
        let mut other = Batch::of(&(0..40).map(|s| (0, s)).collect::<Vec<_>>());
        other.ids.iter_mut().for_each(|id| *id = 1);
        run(&mut scheduler, &toy, &other, true);
        for (page, bytes) in [(1, &saved[0]), (3, &saved[1])] {
            scheduler
                .kv_write(LayerKind::Windowed, page, bytes)
                .unwrap();
        }
        let mut moved = decode();
        moved.full[..2].copy_from_slice(&[0, 3]);
        moved.windowed[..2].copy_from_slice(&[1, 3]);
        assert_ne!(run(&mut scheduler, &toy, &decode(), true), want, "{name}");
        assert_eq!(run(&mut scheduler, &toy, &moved, true), want, "{name}");
    }
}

#[test]
fn a_page_is_its_layers_in_order_and_k_before_v() {
    let toy = Toy::new();
    let mut scheduler = scheduler(&toy, vec![TestBackend::plain(Claims::everything())]);
    assert_eq!(scheduler.kv_page_bytes(LayerKind::Full), 0, "none yet");
    let batch = prompt();
    run(&mut scheduler, &toy, &batch, true);
    let mut reference = Reference::new(Decoded::new(&toy.weights, &decode_f32));
    let graph = toy.build(&params(40, 40, false));
    let values = reference.run(&graph, &batch.inputs());
    for (kind, layer, page) in [(LayerKind::Full, 0, 4), (LayerKind::Windowed, 1, 2)] {
        let mut bytes = vec![7];
        scheduler.kv_read(kind, page, &mut bytes).unwrap();
        assert_eq!(bytes.len(), 1 + scheduler.kv_page_bytes(kind), "appended");
        let got = bytes[1..].chunks_exact(4);
        let got = got.map(|b| f32::from_ne_bytes(b.try_into().unwrap()));
        let stores = graph.nodes.iter().enumerate();
        let stores = stores.filter(|(_, n)| n.op.region().is_some_and(|r| r.0 == layer));
        let want: Vec<f64> = stores
            .flat_map(|(i, _)| {
                let v = &values[i];
                v.data[page as usize * PAGE * v.cols..][..PAGE * v.cols].to_vec()
            })
            .collect();
        assert_eq!(want.len(), 2 * PAGE * 8);
        for (g, w) in got.zip(&want) {
            assert!((f64::from(g) - w).abs() < 1e-3, "{kind:?}: {g} and {w}");
        }
    }
}

#[test]
fn pages_that_are_not_there_are_refused_by_name() {
    let toy = Toy::new();
    let mut s = scheduler(&toy, vec![TestBackend::plain(Claims::everything())]);
    let text = |r: Result<(), GraphError>| r.unwrap_err().to_string();
    let early = text(s.kv_copy(LayerKind::Full, 0, 1));
    assert!(early.contains("Scheduler::prepare"), "{early}");
    let early = shift(&mut s, &toy, [&[-32], &[0], &[0]]);
    assert!(matches!(early, Err(GraphError::NoKv)));
    let p = params(1, 1, true);
    s.prepare(&p, &|p| toy.build(p)).unwrap();
    let (full, windowed) = (context(true).pages_full as u32, 4);
    let refused = text(s.kv_copy(LayerKind::Full, full, 0));
    assert!(refused.contains("page 5 of the full layers"), "{refused}");
    let refused = text(s.kv_copy(LayerKind::Windowed, 0, windowed));
    assert!(refused.contains("page 4 of the windowed"), "{refused}");
    let mut out = vec![1, 2];
    assert!(s.kv_read(LayerKind::Windowed, 9, &mut out).is_err());
    assert_eq!(out, [1, 2]);
    let bytes = s.kv_page_bytes(LayerKind::Full);
    for wrong in [0, bytes - 1, bytes + 1] {
        let refused = text(s.kv_write(LayerKind::Full, 0, &vec![0; wrong]));
        let named = refused.contains(&bytes.to_string()) && refused.contains(&wrong.to_string());
        assert!(named, "{refused}");
    }
    s.kv_write(LayerKind::Full, 0, &vec![0; bytes]).unwrap();
}

#[test]
fn keys_are_turned_in_the_pages_that_are_named_and_nowhere_else() {
    let toy = Toy::new();
    for (name, backends) in devices() {
        let mut scheduler = scheduler(&toy, backends);
        let mut reference = Reference::new(Decoded::new(&toy.weights, &decode_f32));
        let batch = prompt();
        run(&mut scheduler, &toy, &batch, true);
        reference.run(&toy.build(&params(40, 40, false)), &batch.inputs());
        let windowed = [0, 1, 2, 3];
        let before = pages(&mut scheduler, LayerKind::Windowed, &windowed);
        let (deltas, full, none) = ([-32, 5, -7], [1, -1, 4], [-1, 2, -1]);
        shift(&mut scheduler, &toy, [&deltas, &full, &none]).unwrap();
        let after = pages(&mut scheduler, LayerKind::Windowed, &windowed);
        for page in windowed {
            let same = before[page as usize] == after[page as usize];
            assert_eq!(same, page != 2, "{name}: page {page}");
        }
        let inputs = BatchInputs {
            positions: &deltas,
            pages_full: &full,
            pages_windowed: &none,
            ..BatchInputs::default()
        };
        let graph = toy.build(&shift_params(3));
        reference.run(&graph, &inputs);
        // What later rows see is what the reference's see.
        let next = decode();
        let want = reference.run(&toy.build(&params(1, 1, false)), &next.inputs());
        let want = &want[want.len() - 1].data;
        let got = run(&mut scheduler, &toy, &next, true);
        assert_eq!(got.len(), N_VOCAB);
        for (g, w) in got.iter().zip(want) {
            assert!((f64::from(*g) - w).abs() < 1e-3, "{name}: {g} and {w}");
        }
        assert!(scheduler.read_output(0..1, &mut [0.0; N_VOCAB]).is_ok());
        shift(&mut scheduler, &toy, [&[3], &[0], &[0]]).unwrap();
        let nothing = scheduler.read_output(0..1, &mut [0.0; 8]);
        assert!(nothing.is_err(), "a shift leaves nothing to read");
    }
}

#[test]
fn a_shift_that_does_not_fit_is_refused_by_name_and_value() {
    let toy = Toy::new();
    let mut s = scheduler(&toy, vec![TestBackend::plain(Claims::everything())]);
    run(&mut s, &toy, &prompt(), true);
    let before = pages(&mut s, LayerKind::Full, &[0, 1, 2, 3, 4]);
    type Case<'a> = ([&'a [i32]; 3], &'a str, &'a str);
    let bad: [Case<'_>; 7] = [
        ([&[], &[], &[]], "positions", "0 rows"),
        ([&[1, 1], &[0], &[0, 1]], "pages_full", "1 values for 2"),
        ([&[1], &[0], &[]], "pages_windowed", "0 values for 1"),
        ([&[1], &[5], &[0]], "pages_full", "value 5 is not in 0..5"),
        ([&[1], &[0], &[4]], "pages_windowed", "4 is not in 0..4"),
        ([&[1], &[-2], &[0]], "pages_full", "-2"),
        (
            [&[1, 2, 3], &[2, -1, 2], &[-1, -1, -1]],
            "pages_full",
            "page 2 comes twice",
        ),
    ];
    for (given, input, reason) in bad {
        let text = shift(&mut s, &toy, given).unwrap_err().to_string();
        assert!(text.contains(input) && text.contains(reason), "{text}");
    }
    assert_eq!(pages(&mut s, LayerKind::Full, &[0, 1, 2, 3, 4]), before);
}

#[test]
fn embeddings_are_the_normed_stream_of_the_asked_rows() {
    let toy = Toy::new();
    let mut s = scheduler(&toy, vec![TestBackend::foreign(Claims::everything())]);
    let batch = Batch::of(&[(0, 0), (0, 1), (1, 0)]);
    let p = GraphParams {
        kind: GraphKind::Embeddings,
        ..params(3, 3, true)
    };
    s.forward(&p, &|p| toy.build(p), &batch.inputs(), None)
        .unwrap();
    let mut got = vec![0.0; 3 * 16];
    s.read_output(0..3, &mut got).unwrap();
    let mut reference = Reference::new(Decoded::new(&toy.weights, &decode_f32));
    let logits = toy.build(&params(3, 3, false));
    let values = reference.run(&logits, &batch.inputs());
    let normed = logits.node(logits.outputs[0]).srcs[0];
    for (g, w) in got.iter().zip(&values[normed.index()].data) {
        assert!((f64::from(*g) - w).abs() < 1e-4, "{g} and {w}");
    }
}
