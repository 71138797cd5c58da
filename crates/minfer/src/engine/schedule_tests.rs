//! How a step is scheduled on the CPU: barriers a layer, and that merged blocks of nodes change no bit.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Model;
use crate::backend::cpu::CpuBackend;
use crate::graph::{
    BatchInputs, ContextParams, GraphError, GraphKind, GraphParams, KvType, Scheduler,
    SchedulerOptions, capacity_class,
};
use crate::lanes::Machine;

const NAMES: [&str; 6] = ["llama", "llama3", "qwen2", "qwen2-yarn", "qwen3", "gemma3"];
const SEQS: usize = 4;
const PAGES_PER_SEQ: usize = 20;
/// Barriers beside those of the layers: embedding, its scale, angles, asked rows, head.
const ENDS: u64 = 4;

/// A token's row: sequence and slot; the token is a function of both.
type Row = (usize, usize);

#[derive(Clone, Copy)]
struct Way {
    threads: usize,
    merge: bool,
    fuse: bool,
    kv: KvType,
}

const PLAIN: Way = Way {
    threads: 1,
    merge: false,
    fuse: true,
    kv: KvType::F16,
};

/// A model on a CPU backend, without an engine.
struct Rig {
    model: Arc<Model>,
    scheduler: Scheduler,
    context: ContextParams,
    /// Which segment of attention fails, counted from when it is set; 0: none.
    fail: Arc<AtomicUsize>,
}

impl Rig {
    fn new(model: &Arc<Model>, way: Way) -> Rig {
        let mut backend = CpuBackend::with_machine(Machine::detect(), way.threads).unwrap();
        backend.set_merge(way.merge);
        let fail = backend.failing_segment();
        let mut scheduler = Scheduler::new(vec![Box::new(backend)], SchedulerOptions::default());
        scheduler
            .load_weights(model.weights(), &mut |_, _| {})
            .unwrap();
        let windowed = model.hparams().sliding_window.is_some();
        let pages = SEQS * PAGES_PER_SEQ;
        Rig {
            model: model.clone(),
            scheduler,
            context: ContextParams {
                type_k: way.kv,
                type_v: way.kv,
                pages_full: pages,
                pages_windowed: if windowed { pages } else { 0 },
                max_seqs: SEQS,
                pages_per_seq: PAGES_PER_SEQ,
                fuse: way.fuse,
            },
            fail,
        }
    }

    /// One pass; the bits of the asked rows' logits, and the barriers it took.
    fn pass(&mut self, rows: &[Row], asked: &[i32]) -> (Vec<u32>, u64) {
        self.try_pass(rows, asked).unwrap()
    }

    fn try_pass(&mut self, rows: &[Row], asked: &[i32]) -> Result<(Vec<u32>, u64), GraphError> {
        let column = |f: &dyn Fn(&Row) -> usize| -> Vec<i32> {
            rows.iter().map(|r| i32::try_from(f(r)).unwrap()).collect()
        };
        let n_vocab = self.model.hparams().n_vocab;
        let ids = column(&|(seq, slot)| (seq * 97 + slot * 31 + slot * slot) % n_vocab);
        let (seqs, slots) = (column(&|r| r.0), column(&|r| r.1));
        let page = |i: usize| i % PAGES_PER_SEQ * SEQS + i / PAGES_PER_SEQ;
        let table: Vec<i32> = (0..SEQS * PAGES_PER_SEQ).map(|i| page(i) as i32).collect();
        let windowed = if self.context.pages_windowed > 0 {
            &table[..]
        } else {
            &[]
        };
        let params = GraphParams {
            n_tokens: capacity_class(rows.len()),
            n_out: capacity_class(asked.len()),
            kind: GraphKind::Logits,
            context: self.context,
            weights_version: 0,
        };
        let inputs = BatchInputs {
            token_ids: &ids,
            positions: &slots,
            slots: &slots,
            row_seq: &seqs,
            out_rows: asked,
            page_table_full: &table,
            page_table_windowed: windowed,
            ..BatchInputs::default()
        };
        let (arch, before) = (self.model.arch(), self.scheduler.counters());
        self.scheduler
            .forward(&params, &|p| arch.build(p), &inputs, None)?;
        let mut out = vec![0.0; asked.len() * n_vocab];
        self.scheduler.read_output(0..asked.len(), &mut out)?;
        for (row, want) in out.chunks_exact(n_vocab).enumerate() {
            let mut room = Vec::new();
            let there = self.scheduler.output_row(row, &mut room).unwrap();
            assert_eq!(there, want);
            assert!(room.is_empty(), "a row in the host's memory is not copied");
        }
        let bits = out.iter().map(|x| x.to_bits()).collect();
        Ok((bits, self.scheduler.counters().since(before).barriers))
    }

    /// The first `n` tokens of a sequence.
    fn prefill(&mut self, seq: usize, slots: std::ops::Range<usize>) -> Vec<u32> {
        let rows: Vec<Row> = slots.map(|slot| (seq, slot)).collect();
        self.pass(&rows, &[rows.len() as i32 - 1]).0
    }
}

fn model(name: &str) -> Arc<Model> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny_models");
    Model::open(&folder.join(format!("{name}.gguf"))).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_decode_step_has_at_most_five_barriers_a_layer() {
    for name in NAMES {
        let model = model(name);
        let layers = model.hparams().n_layer as u64;
        for (threads, fewest) in [(2, false), (3, false), (2, true)] {
            let way = Way {
                threads,
                merge: !fewest,
                ..PLAIN
            };
            let mut rig = Rig::new(&model, way);
            for (from, depth) in [(0, 40), (40, 300), (300, 530)] {
                rig.prefill(0, from..depth);
                rig.prefill(1, from..depth);
                let one = rig.pass(&[(0, depth)], &[0]).1;
                let two = rig.pass(&[(0, depth), (1, depth)], &[0, 1]).1;
                for (rows, seen) in [(1, one), (2, two)] {
                    let few = seen <= 5 * layers + ENDS;
                    assert_eq!(
                        few, !fewest,
                        "{name}, {threads} threads, {rows} rows at {depth}: {seen} barriers in {layers} layers"
                    );
                }
            }
        }
    }
}

/// Passes whose rows are prefill, decode of one and of several sequences, and both; over a segment's
/// border and past every window; with all rows asked, some, and others in another order.
fn passes(rig: &mut Rig) -> Vec<Vec<u32>> {
    let mut seen = vec![
        rig.prefill(0, 0..255),
        rig.prefill(1, 0..37),
        rig.prefill(2, 0..300),
    ];
    for i in 0..3 {
        let rows = [(0, 255 + i), (1, 37 + i), (2, 300 + i)];
        seen.push(rig.pass(&rows, &[0, 1, 2]).0);
    }
    seen.push(rig.pass(&[(1, 40), (0, 258)], &[1]).0);
    seen.push(rig.pass(&[(1, 41), (2, 303)], &[1, 0]).0);
    seen.push(rig.pass(&[(2, 304), (0, 259), (0, 260)], &[0, 2]).0);
    seen.push(rig.pass(&[(1, 42)], &[0]).0);
    seen.push(rig.pass(&[(2, 305)], &[0]).0);
    seen.push(rig.prefill(2, 306..511));
    for slot in 511..514 {
        seen.push(rig.pass(&[(2, slot)], &[0]).0);
    }
    seen
}

#[test]
fn merged_blocks_give_the_bits_of_single_nodes() {
    let mut seen = BTreeSet::new();
    for name in NAMES {
        let model = model(name);
        for (kv, ways) in [
            (
                KvType::F16,
                &[(1, true), (2, true), (3, false), (4, true)][..],
            ),
            (KvType::F32, &[(2, false), (3, true)]),
            (KvType::Q8_0, &[(2, true), (4, false)]),
        ] {
            if model.hparams().head_dim % kv.block() != 0 {
                continue; // refused
            }
            seen.insert(kv.name());
            let want = passes(&mut Rig::new(&model, Way { kv, ..PLAIN }));
            for &(threads, fuse) in ways {
                let merge = true;
                let way = Way {
                    threads,
                    merge,
                    fuse,
                    kv,
                };
                let got = passes(&mut Rig::new(&model, way));
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    assert!(
                        got == want,
                        "{name}, {kv:?}, {threads} threads, fuse {fuse}: pass {i}"
                    );
                }
            }
        }
    }
    assert_eq!(seen.len(), 3, "every format has a model: {seen:?}");
}

#[test]
fn after_a_failure_inside_a_merged_step_passes_have_their_bits() {
    let way = Way {
        threads: 2,
        merge: true,
        ..PLAIN
    };
    let model = model("llama");
    let (mut failed, mut never) = (Rig::new(&model, way), Rig::new(&model, way));
    for rig in [&mut failed, &mut never] {
        // Three segments of each: a head's are shared among the threads.
        for seq in 0..2 {
            rig.prefill(seq, 0..300);
            rig.prefill(seq, 300..530);
        }
    }
    for segment in [1, 2, 4] {
        failed.fail.store(segment, Ordering::Relaxed);
        let error = failed.try_pass(&[(0, 530)], &[0]).unwrap_err();
        assert!(error.to_string().contains("as a test asked"), "{error}");
        for row in [(1, 530), (0, 530)] {
            let [got, want] = [&mut failed, &mut never].map(|r| r.pass(&[row], &[0]).0);
            assert!(got == want, "{row:?} after segment {segment} failed");
        }
    }
}

#[test]
fn a_row_of_a_batch_is_the_row_alone() {
    for name in NAMES {
        let model = model(name);
        let way = Way {
            threads: 2,
            merge: true,
            ..PLAIN
        };
        let (mut batch, mut alone) = (Rig::new(&model, way), Rig::new(&model, way));
        for rig in [&mut batch, &mut alone] {
            (0..SEQS).for_each(|seq| drop(rig.prefill(seq, 0..100 * seq + 10)));
        }
        let rows: Vec<Row> = (0..SEQS).map(|seq| (seq, 100 * seq + 10)).collect();
        let together = batch.pass(&rows, &[0, 1, 2, 3]).0;
        let each: Vec<u32> = rows
            .iter()
            .flat_map(|r| alone.pass(&[*r], &[0]).0)
            .collect();
        assert!(together == each, "{name}");
    }
}
