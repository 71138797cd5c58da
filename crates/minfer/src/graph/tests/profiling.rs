//! Time by node.

use super::backends::{Claims, TestBackend};
use super::execution::{batches, scheduler};
use super::toy::{Toy, params};
use crate::graph::*;

#[test]
fn every_node_that_computes_is_timed_once_a_pass() {
    let toy = Toy::new();
    let batch = &batches()[0];
    for fuse in [false, true] {
        let mut s = scheduler(&toy, vec![TestBackend::foreign(Claims::everything())]);
        let p = params(batch.ids.len(), batch.out.len(), fuse);
        let build = |p: &GraphParams| toy.build(p);
        let mut profile = Profile::new();
        assert_eq!(profile.total(), Spent::default());
        let passes = 3;
        let began = std::time::Instant::now();
        for _ in 0..passes {
            let observer: Option<&mut dyn Observer> = Some(&mut profile);
            s.forward(&p, &build, &batch.inputs(), observer).unwrap();
        }
        let took = began.elapsed();
        let graph = s.prepare(&p, &build).unwrap();
        let mut want: Vec<Timed> = Vec::new();
        for node in &graph.nodes {
            if !matches!(node.op, Op::Input(_) | Op::View { .. }) {
                want.push(Timed {
                    op: node.op.name(),
                    name: node.name,
                    layer: node.layer,
                });
            }
        }
        assert_eq!(profile.total().count, passes * want.len() as u64);
        for (timed, spent) in profile.spent() {
            let same = want.iter().filter(|w| *w == timed).count() as u64;
            assert_eq!(spent.count, passes * same, "{timed:?}");
            assert!(same > 0 && spent.time.as_nanos() > 0);
        }
        assert!(profile.total().time <= took, "nothing counts twice");
    }
}

#[test]
fn the_table_has_each_op_each_name_and_each_layer() {
    let toy = Toy::new();
    let batch = &batches()[0];
    let mut s = scheduler(&toy, vec![TestBackend::plain(Claims::everything())]);
    let p = params(batch.ids.len(), batch.out.len(), true);
    let mut profile = Profile::new();
    s.forward(&p, &|p| toy.build(p), &batch.inputs(), Some(&mut profile))
        .unwrap();
    let table = profile.table();
    let lines: Vec<&str> = table.lines().collect();
    let starting = |with: &str| {
        let found: Vec<&&str> = lines.iter().filter(|l| l.starts_with(with)).collect();
        assert_eq!(found.len(), 1, "{with} in:\n{table}");
        found[0].split_whitespace().collect::<Vec<_>>()
    };
    assert!(table.contains("waited for"), "says what it shows");
    // Two stores a layer; one table of angles, in no layer.
    assert_eq!(starting("kv_store  ")[3], "4");
    assert_eq!(starting("kv_store k_store")[4], "2");
    assert_eq!(starting("matmul logits")[4], "1");
    let layers = lines
        .iter()
        .position(|l| l.starts_with("layer ms"))
        .unwrap();
    let heads: Vec<&str> = lines[layers].split_whitespace().skip(2).collect();
    assert_eq!(lines.len() - layers - 1, 3, "no layer, 0 and 1:\n{table}");
    assert_eq!(heads.last(), Some(&"all"));
    let firsts = lines[layers + 1..]
        .iter()
        .map(|l| l.split_whitespace().next());
    assert!(firsts.eq([Some("-"), Some("0"), Some("1")]), "{table}");
    let width = lines[layers].len();
    assert!(
        lines[layers + 1..].iter().all(|l| l.len() == width),
        "{table}"
    );
    // The sums of the parts are the whole, up to rounding to microseconds.
    let all = |line: &str| {
        line.split_whitespace()
            .last()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    let sum: f64 = lines[layers + 1..].iter().map(|l| all(l)).sum();
    let whole = profile.total().time.as_secs_f64() * 1e3;
    assert!((sum - whole).abs() < 0.01, "{sum} and {whole}");
}
