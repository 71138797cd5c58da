use super::*;

fn key(machine: &str, kernel: &str) -> Key {
    (machine.to_owned(), kernel.to_owned())
}

/// As callgrind 3.19 writes it with `--combine-dumps=yes`, its costs left out.
const PROFILE: &str = "\
# callgrind format
version: 1
creator: callgrind-3.19.0
pid: 4021
cmd:  count_kernels avx2
part: 1


desc: I1 cache:
desc: Timerange: Basic block 0 - 30
desc: Trigger: --dump-after=counted_call

positions: line
events: Ir
summary: 4800

totals: 4800

part: 2

desc: Timerange: Basic block 30 - 60
desc: Trigger: --dump-after=counted_call

events: Ir
summary: 70
totals: 70

part: 3

desc: Trigger: Program termination

events: Ir
totals: 0
";

#[test]
fn each_counted_call_is_a_part_of_the_profile_and_the_end_is_none() {
    assert_eq!(instructions(PROFILE), Ok(vec![4800, 70]));
    let broken = PROFILE.replace("totals: 70", "totals: x");
    assert!(instructions(&broken).is_err_and(|e| e.contains("`x`")));
    assert!(instructions("").is_err());
}

#[test]
fn counts_are_of_units_and_belong_to_names_in_order() {
    let kernels = kernels("product Q4_0 x1\t1600\nnorm\t64\n").expect("two");
    let counts = paired("avx2", &kernels, &[4800, 96]).expect("as many");
    assert_eq!(counts[&key("avx2", "product Q4_0 x1")], 3.0);
    assert_eq!(counts[&key("avx2", "norm")], 1.5);
}

#[test]
fn what_was_not_counted_is_an_error() {
    let two = kernels("a\t1\nb\t1\n").expect("two");
    assert!(paired("avx2", &two, &[1]).is_err_and(|e| e.contains("2 kernels ran")));
    assert!(paired("avx2", &two, &[1, 0]).is_err_and(|e| e.contains("b: no instruction")));
    assert!(paired("avx2", &[], &[]).is_err());
    let same = kernels("a\t1\na\t1\n").expect("two");
    assert!(paired("avx2", &same, &[1, 1]).is_err_and(|e| e.contains("two kernels")));
    for line in ["a", "a\t0", "a\tmany"] {
        assert!(kernels(line).is_err_and(|e| e.contains(line)), "{line}");
    }
}

#[test]
fn bounds_are_read_as_they_are_written_and_other_machines_keep_theirs() {
    let old = "neon-nodot  norm  2\navx2 gone 9\n";
    let counts = Counts::from([
        (key("avx2", "product Q4_0 x1"), 1.25),
        (key("scalar", "norm"), 31.5),
    ]);
    let text = written(&counts, bounds(old).expect("bounds"), &["scalar", "avx2"]);
    let mut want = counts;
    want.insert(key("neon-nodot", "norm"), 2.0);
    assert_eq!(bounds(&text), Ok(want));
}

#[test]
fn a_line_that_is_no_bound_is_named() {
    for line in ["avx2 1.0", "avx2 norm", "avx2 norm 0", "avx2 norm inf"] {
        let text = format!("# bounds\n{line}\n");
        let e = bounds(&text).expect_err(line);
        assert!(e.contains("line 2") && e.contains(line), "{e}");
    }
    let twice = bounds("avx2 norm 1\navx2 norm 2\n");
    assert!(twice.is_err_and(|e| e.contains("second")));
}

#[test]
fn a_tenth_more_fails_and_a_tenth_less_is_told() {
    assert_eq!(verdict(Some(1.09), Some(1.0)), Verdict::Good);
    assert_eq!(verdict(Some(0.91), Some(1.0)), Verdict::Good);
    assert_eq!(verdict(Some(1.11), Some(1.0)), Verdict::TooMany);
    assert_eq!(verdict(Some(0.89), Some(1.0)), Verdict::Loose);
}

#[test]
fn kernels_without_a_bound_and_bounds_without_a_kernel_fail() {
    let counts = Counts::from([
        (key("avx2", "norm"), 1.0),
        (key("avx2", "new"), 1.0),
        (key("avx2", "loose"), 1.0),
    ]);
    let text = "avx2 norm 1\navx2 gone 1\navx2 loose 5\nneon-nodot norm 1\n";
    let bounds = bounds(text).expect("bounds");
    assert_eq!(report(&counts, &bounds, &["scalar", "avx2"]), 2);
    let known = Counts::from([(key("avx2", "norm"), 1.0)]);
    assert_eq!(report(&known, &known, &["scalar", "avx2"]), 0);
    let slow = Counts::from([(key("avx2", "norm"), 8.0)]);
    assert_eq!(report(&slow, &known, &["scalar", "avx2"]), 1);
}

#[test]
fn a_machine_without_any_bounds_is_not_run_and_says_the_way_out() {
    let known = bounds("avx2 norm 1\n").expect("bounds");
    assert_eq!(not_run(&known, &["scalar", "avx2"]), None);
    let why = not_run(&known, &["neon-nodot"]).unwrap_or_default();
    let says = ["no bounds", "neon-nodot", "counts --write", "no failure"];
    assert!(says.iter().all(|words| why.contains(words)), "{why}");
    let why = not_run(&known, &[]).unwrap_or_default();
    assert!(why.contains(std::env::consts::ARCH), "{why}");
}
