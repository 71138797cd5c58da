//! Attention on one thread: decode in GB of KV a second, prefill in Gflop a second.
//!
//! `cargo run --release -p minfer --example bench_attention [CONTEXT [TYPE_K [TYPE_V]]]` (2048, f16, K's
//! type); `MINFER_CPU=avx2` and so on picks the machine. Decode reads 256 MB of pages, so that nothing stays
//! in cache: in order, as a sequence of its own mostly has them, and scattered; beside it stands a plain
//! read of the same memory.

#[path = "common/kv.rs"]
mod kv;

use std::time::Instant;

use kv::Kv;
use memmap2::MmapMut;
use minfer::backend::cpu::kernels::attention::{Scratch, merge, segments, tile};
use minfer::graph::{KvType, PAGE};
use minfer::lanes::Machine;

/// Bytes of each region.
const REGION: usize = 128 << 20;
/// Parts of the regions that are measured one by one.
const PARTS: usize = 16;
/// Tokens of the measured prefill chunk.
const CHUNK: usize = 48;

/// Regions full of numbers on huge pages (a page walk for every 4 KB would hide everything else), and a
/// stream of random numbers.
struct Data {
    types: (KvType, KvType),
    k: MmapMut,
    v: MmapMut,
    seed: u64,
}

/// A region of random numbers.
fn region(seed: u64) -> MmapMut {
    let mut map = MmapMut::map_anon(REGION).expect("memory for a region");
    #[cfg(target_os = "linux")]
    map.advise(memmap2::Advice::HugePage)
        .expect("huge pages are allowed");
    kv::fill(&mut map, seed);
    map
}

impl Data {
    fn kv<'a>(&'a self, page_table: &'a [i32], pages_per_seq: usize) -> Kv<'a> {
        Kv {
            types: self.types,
            k: &self.k,
            v: &self.v,
            page_table,
            pages_per_seq,
        }
    }

    fn next(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    /// Numbers 0..n in random order.
    fn shuffled(&mut self, n: usize) -> Vec<i32> {
        let mut v: Vec<i32> = (0..n as i32).collect();
        for i in (1..n).rev() {
            v.swap(i, self.next() as usize % (i + 1));
        }
        v
    }
}

fn main() {
    let context: usize = match std::env::args().nth(1) {
        Some(arg) => arg.parse().expect("CONTEXT is a number of positions"),
        None => 2048,
    };
    let machine = match std::env::var("MINFER_CPU") {
        Ok(name) => Machine::from_name(&name).expect("MINFER_CPU"),
        Err(_) => Machine::detect(),
    };
    let kv_type = |n: usize| {
        std::env::args()
            .nth(n)
            .map(|t| t.parse().expect("a KV type"))
    };
    let type_k = kv_type(2).unwrap_or(KvType::F16);
    let mut data = Data {
        types: (type_k, kv_type(3).unwrap_or(type_k)),
        k: region(1),
        v: region(2),
        seed: 88172645463325252,
    };
    println!(
        "machine {}, context {context}, K {}, V {}, one thread; plain read {:.1} GB/s",
        machine.name(),
        data.types.0.name(),
        data.types.1.name(),
        read(&data)
    );
    for (head_dim, group) in [(64, 3), (64, 4), (64, 7), (128, 2), (128, 6), (256, 4)] {
        let [in_order, scattered] =
            [true, false].map(|o| decode(machine, &mut data, head_dim, group, context, o));
        let p = prefill(machine, &mut data, head_dim, group, context);
        println!(
            "head_dim {head_dim} group {group}: decode {in_order:.1} GB/s, of scattered pages \
             {scattered:.1}, prefill {p:.0} Gflop/s"
        );
    }
}

/// The best of many short runs `f(0)`, `f(1)`, … `f(n - 1)`, in seconds: so short that most are not
/// interrupted on a busy machine.
fn best(n: usize, mut f: impl FnMut(usize)) -> f64 {
    let mut best = f64::INFINITY;
    for i in (0..n).cycle().take(n * 40_usize.div_ceil(n).max(3)) {
        let t = Instant::now();
        f(i);
        best = best.min(t.elapsed().as_secs_f64());
    }
    best
}

/// GB a second of summing the regions, a part at a time.
fn read(data: &Data) -> f64 {
    let part = data.k.len() / PARTS;
    let s = best(PARTS, |i| {
        for region in [&data.k, &data.v] {
            let mut sum = [0u8; 64];
            for c in region[i * part..][..part].chunks_exact(64) {
                for (s, x) in sum.iter_mut().zip(c) {
                    *s = s.wrapping_add(*x);
                }
            }
            std::hint::black_box(sum);
        }
    });
    (part * 2) as f64 / s / 1e9
}

/// GB of K and V a second, every page of the regions once; sequences of `context`, one KV head.
fn decode(
    machine: Machine,
    data: &mut Data,
    head_dim: usize,
    group: usize,
    context: usize,
    in_order: bool,
) -> f64 {
    let pages_per_seq = context / PAGE;
    let (k, v) = data.types;
    let (k, v) = (k.head_bytes(head_dim), v.head_bytes(head_dim));
    let pages = REGION / k.max(v);
    let seqs = pages / pages_per_seq;
    let table = match in_order {
        true => (0..pages as i32).collect(),
        false => data.shuffled(pages),
    };
    let kv = data.kv(&table, pages_per_seq);
    let q = vec![0.01f32; group * head_dim];
    let mut out = vec![0.0f32; group * head_dim];
    let mut scratch = Scratch::new();
    let slots = [(context - 1) as i32];
    let mut partials = Vec::new();
    let part = (seqs / PARTS).max(1);
    let s = best(seqs / part, |i| {
        for seq in i * part..(i + 1) * part {
            let row_seq = [seq as i32];
            let a = kv.args(&q, &slots, &row_seq, head_dim, group);
            let all = a.segments(&(0..1));
            partials.resize(all.len() * a.partial_len(&(0..1)), 0.0);
            // SAFETY: the table has a page, and the regions numbers, for every slot.
            unsafe {
                segments(machine, &a, 0, 0..1, all, &mut scratch, &mut partials);
                merge(
                    machine,
                    &a,
                    0,
                    0..1,
                    &mut partials,
                    out.as_mut_ptr(),
                    group * head_dim,
                );
            }
        }
        std::hint::black_box(&out);
    });
    (part * pages_per_seq * (k + v)) as f64 / s / 1e9
}

/// Gflop a second of a chunk at the end of `context`, counting only what the causal mask lets through.
fn prefill(
    machine: Machine,
    data: &mut Data,
    head_dim: usize,
    group: usize,
    context: usize,
) -> f64 {
    let pages_per_seq = context / PAGE;
    let table = data.shuffled(pages_per_seq);
    let kv = data.kv(&table, pages_per_seq);
    let width = group * head_dim;
    let q = vec![0.01f32; CHUNK * width];
    let mut out = vec![0.0f32; CHUNK * width];
    let mut scratch = Scratch::new();
    let slots: Vec<i32> = (context - CHUNK..context).map(|s| s as i32).collect();
    let row_seq = [0; CHUNK];
    let s = best(1, |_| {
        let a = kv.args(&q, &slots, &row_seq, head_dim, group);
        let mut start = 0;
        while start < CHUNK {
            let rows = a.tile_from(start, CHUNK);
            start = rows.end;
            // SAFETY: the table has a page, and the regions numbers, for every slot.
            unsafe { tile(machine, &a, 0, rows, &mut scratch, out.as_mut_ptr(), width) };
        }
        std::hint::black_box(&out);
    });
    let seen: i32 = slots.iter().map(|s| s + 1).sum();
    (seen as usize * width * 4) as f64 / s / 1e9
}
