//! `bench`: what it sweeps, what it prints in each format, what it counts.

use minfer::backend::cpu::machine_of;
use serde_json::Value;

use crate::models::tiny;
use crate::process::run;

fn rows(args: &[&str]) -> Vec<Value> {
    let model = tiny("llama");
    let all = [&["bench", &model, "-o", "json"][..], args].concat();
    run(all).json().as_array().unwrap().clone()
}

fn number(r: &Value, key: &str) -> f64 {
    r[key].as_f64().unwrap_or_else(|| panic!("{key}: {r}"))
}

#[test]
fn bench_has_llama_benchs_fields_in_every_format() {
    let model = tiny("llama");
    let bench = |format: &str| {
        let args = [
            "bench", &model, "-p", "16,8", "-n", "4", "-t", "1,2", "-r", "3", "-o", format,
        ];
        run(args)
    };
    let rows: Value = bench("json").json();
    let tests: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|r| ["n_threads", "n_prompt", "n_gen"].map(|k| number(r, k) as u32))
        .collect();
    let of = |t| [[t, 16, 0], [t, 8, 0], [t, 0, 4]];
    assert_eq!(tests, [of(1), of(2)].concat());
    for r in rows.as_array().unwrap() {
        let samples: Vec<f64> = r["samples_ts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|x| x.as_f64().unwrap())
            .collect();
        assert!(samples.len() == 3 && samples.iter().all(|x| *x > 0.0));
        let mean = samples.iter().sum::<f64>() / 3.0;
        let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2.0;
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let near = |key, x: f64| assert!((number(r, key) - x).abs() <= 1e-9 * mean, "{key} {r}");
        near("avg_ts", mean);
        near("stddev_ts", variance.sqrt());
        near("median_ts", sorted[1]);
        let steps = number(r, "n_gen").max(1.0);
        assert_eq!(number(r, "steps"), steps);
        let forward = steps * number(r, "forward_ms_per_step");
        let tokens = number(r, "n_prompt") + number(r, "n_gen");
        let elapsed = samples.iter().map(|ts| 1e3 * tokens / ts).sum::<f64>() / 3.0;
        assert!(
            forward > 0.0 && forward <= elapsed,
            "{forward} of {elapsed} ms"
        );
        // No token is chosen, only made up.
        assert!(number(r, "sample_ms_per_step") < number(r, "forward_ms_per_step"));
        assert_eq!(r["model_filename"], "llama.gguf");
    }
    let csv = bench("csv");
    let lines: Vec<Vec<&str>> = csv.ok().lines().map(|l| l.split(',').collect()).collect();
    for name in [
        "n_prompt",
        "n_gen",
        "n_threads",
        "avg_ts",
        "stddev_ts",
        "median_ts",
        "steps",
        "forward_ms_per_step",
    ] {
        assert!(lines[0].contains(&name), "{name}");
    }
    assert!(lines.len() == 7 && lines.iter().all(|l| l.len() == lines[0].len()));
    let md = bench("md");
    for cell in ["| pp16 |", "| pp8 |", "| tg4 |", "| llama.gguf |", " ± "] {
        assert!(md.ok().contains(cell), "{cell}");
    }
    let (table, steps) = md.ok().split_once("\n\n").expect("a table, then the steps");
    assert_eq!(table.lines().count(), 8);
    // Of each of two engines: a warm-up and three repetitions.
    let lines: Vec<&str> = steps.lines().collect();
    assert_eq!(lines.len(), 2, "{steps}");
    for (line, threads) in lines.iter().zip(1..) {
        let head =
            format!("{threads} threads, k/v f16/f16: 24 steps, 96 prompt rows, 16 decode rows; ");
        assert!(line.starts_with(&head), "{line}");
        assert!(
            line.contains("forward") && line.contains(" barriers, "),
            "{line}"
        );
    }
    assert!(!md.stdout.contains("of read"), "only with --roofline");
}

#[test]
fn bench_sweeps_every_list_and_names_tests_as_llama_bench_does() {
    let sweep = rows(&[
        "-p",
        "8,0",
        "-n",
        "4",
        "-d",
        "0,40",
        "-b",
        "1,2",
        "-t",
        "1",
        "-r",
        "1",
        "--cache-type-k",
        "f16,f32",
        "--n-batch",
        "16",
    ]);
    let names = |rows: &[Value]| -> Vec<String> {
        rows.iter()
            .map(|r| r["test"].as_str().unwrap().to_owned())
            .collect()
    };
    let each = [
        "pp8",
        "tg4",
        "tg4 x2",
        "pp8 @ d40",
        "tg4 @ d40",
        "tg4 @ d40 x2",
    ];
    assert_eq!(names(&sweep), [each, each].concat());
    let types: Vec<_> = sweep
        .iter()
        .map(|r| r["type_k"].as_str().unwrap())
        .collect();
    assert_eq!(types, [["f16"; 6], ["f32"; 6]].concat());
    for r in &sweep {
        assert_eq!((number(r, "n_batch"), &r["type_v"]), (16.0, &"f16".into()));
        assert_eq!(number(r, "stddev_ts"), 0.0, "of one repetition");
        assert_eq!(r["sampling"], false);
        assert_eq!(r["instruction_set"], machine_of(None).unwrap().name());
        assert!(r.get("disturbed").is_none(), "only with --roofline");
        // F32 weights: no integer products.
        assert!(number(r, "f32_ops_per_token") > 0.0 && number(r, "int8_ops_per_token") == 0.0);
    }
    // A deeper token reads more KV, two sequences share the weights.
    let at = |i: usize, key| number(&sweep[i], key);
    assert!(at(4, "kv_bytes_per_token") > at(1, "kv_bytes_per_token"));
    let (one, two) = (
        at(1, "weight_bytes_per_token"),
        at(2, "weight_bytes_per_token"),
    );
    assert!(two < 0.51 * one && two > 0.5 * one, "{one} {two}");
    assert_eq!(number(&sweep[5], "n_depth"), 40.0);
    assert_eq!(number(&sweep[5], "n_seqs"), 2.0);
    let whole = rows(&["-p", "0", "-n", "4", "-r", "2", "--sample", "--no-warmup"]);
    assert_eq!(
        (names(&whole), &whole[0]["sampling"]),
        (vec!["tg4".to_owned()], &true.into())
    );
    assert_eq!(whole[0]["samples_ts"].as_array().unwrap().len(), 2);
    assert!(number(&whole[0], "sample_ms_per_step") > 0.0);
}

/// The release build allocates nothing in a step (a debug build's check builds graphs); barriers are the plan's.
#[test]
fn bench_counts_barriers_and_allocations() {
    let counted = rows(&["-p", "64", "-n", "8", "-b", "1,8", "-t", "2", "-r", "2"]);
    for r in &counted {
        let per_layer = number(r, "barriers_per_layer");
        assert!((1.0..20.0).contains(&per_layer), "{r}");
        let allocations = number(r, "allocations_per_token");
        assert!(cfg!(debug_assertions) || allocations == 0.0, "{r}");
        assert!(
            !cfg!(debug_assertions) || allocations > 0.0,
            "the counter counts: {r}"
        );
    }
}

#[test]
fn bench_shows_each_speed_beside_the_machines_limits() {
    let args = ["-p", "16", "-n", "4", "-t", "2", "-r", "1", "--roofline"];
    for r in rows(&args) {
        for key in ["read_share", "products_share"] {
            assert!((0.0..1.0).contains(&number(&r, key)), "{r}");
        }
        assert!(number(&r, "products_and_attention_share") > number(&r, "products_share"));
        for when in ["before", "after"] {
            for what in ["read_bytes_per_s", "int8_ops_per_s", "f32_ops_per_s"] {
                assert!(number(&r, &format!("{what}_{when}")) > 1e6, "{r}");
            }
            assert!(number(&r, &format!("barrier_ns_{when}")) > 0.0);
        }
        let of = |key: &str| {
            (
                number(&r, &format!("{key}_before")),
                number(&r, &format!("{key}_after")),
            )
        };
        let differs = |(a, b): (f64, f64)| (a - b).abs() / a.max(b) > 0.1;
        let all = ["read_bytes_per_s", "int8_ops_per_s", "f32_ops_per_s"];
        assert_eq!(r["disturbed"], all.iter().any(|k| differs(of(k))), "{r}");
    }
    let model = tiny("llama");
    let table = |format: &str| {
        let fixed = ["bench", &model, "-o", format];
        run([&fixed[..], &args].concat())
    };
    let md = table("md");
    for cell in [
        "| of read |",
        "| of peak (products) |",
        "| disturbed |",
        " % |",
    ] {
        assert!(md.ok().contains(cell), "{cell}: {}", md.stdout);
    }
    let csv = table("csv");
    let lines: Vec<Vec<&str>> = csv.ok().lines().map(|l| l.split(',').collect()).collect();
    assert!(lines[0].contains(&"read_share") && lines[0].contains(&"disturbed"));
    assert!(lines.len() == 3 && lines.iter().all(|l| l.len() == lines[0].len()));
}

#[test]
fn benchs_help_says_what_is_timed_and_what_b_is() {
    let help = run(["bench", "--help"]);
    for text in [
        "forward passes",
        "--sample",
        "-npl",
        "--n-batch",
        "ubatch-size",
    ] {
        assert!(help.ok().contains(text), "{text}");
    }
}
