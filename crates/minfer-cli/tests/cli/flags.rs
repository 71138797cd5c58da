//! Wrong usage: one line that names the flag and the value.

use crate::models::tiny;
use crate::process::{finish, minfer, run, spawn};

#[test]
fn flags_out_of_range_are_usage_errors() {
    let model = tiny("llama");
    for (flag, value, needle) in [
        ("--temp", "-1", "--temp is -1"),
        ("--temp", "nan", "--temp is NaN"),
        ("--temp", "inf", "--temp is inf"),
        ("--temp", "warm", "--temp"),
        ("--top-k", "-1", "--top-k"),
        ("--top-p", "1.5", "--top-p is 1.5"),
        ("--top-p", "-0.1", "--top-p is -0.1"),
        ("--min-p", "2", "--min-p is 2"),
        ("--typical", "-1", "--typical is -1"),
        ("--repeat-penalty", "0", "--repeat-penalty is 0"),
        ("--repeat-penalty", "-1", "--repeat-penalty is -1"),
        ("--repeat-last-n", "-2", "--repeat-last-n is -2"),
        ("--presence-penalty", "101", "--presence-penalty is 101"),
        ("--frequency-penalty", "-101", "--frequency-penalty is -101"),
        ("--logit-bias", "nonsense", "nonsense"),
        ("--logit-bias", "5", "ID+BIAS"),
        ("--logit-bias", "5+x", "ID+BIAS"),
        ("--logit-bias", "5+nan", "--logit-bias is NaN"),
        ("--seed", "-2", "or `random` (or -1)"),
        ("--seed", "any", "or `random` (or -1)"),
        ("--seed", "18446744073709551616", "--seed"),
        ("--threads", "0", "'0' for '--threads <N>'"),
        ("-t", "9999", "'9999' for '--threads <N>'"),
        ("-t", "-3", "--threads"),
        ("--n-ctx", "0", "--n-ctx"),
        ("-c", "0", "`minfer inspect MODEL` shows the most"),
        ("--n-batch", "0", "--n-batch"),
        ("--n-batch", "65537", "65536"),
        ("--n-predict", "-2", "--n-predict"),
        ("-n", "many", "'many'"),
        ("--stop", "", "--stop"),
        ("--cache-type-k", "q3", "f32, f16 and q8_0"),
        ("--cache-type-v", "", "--cache-type-v"),
        ("--backend", "gpu", "unknown backend 'gpu'"),
        ("--backend", "metal", "not in this build"),
        ("--no-such-flag", "1", "--no-such-flag"),
    ] {
        run(["run", &model, "hi", flag, value]).refused(2, &[needle]);
    }
}

#[test]
fn what_only_the_model_can_refuse_is_an_error_of_its_user() {
    let model = tiny("llama");
    let bias = ["run", &model, "hi", "--logit-bias", "272+1"];
    run(bias).refused(1, &["--logit-bias", "272", "vocabulary of 272"]);
    run(["run", &model, "hi", "--n-ctx", "513"]).refused(1, &["--n-ctx is 513", "512"]);
    let q8 = ["run", &model, "hi", "--cache-type-v", "q8_0"];
    run(q8).refused(1, &["value cache", "q8_0", "head_dim is 16", "f16"]);
    let nothing = ["run", &model, "", "--no-template"];
    run(nothing).refused(1, &["prompt is empty"]);
    let banned = (0..272).map(|id| format!("--logit-bias={id}=-inf"));
    let args = ["run", &model, "hi", "--no-template"].map(String::from);
    run(args.into_iter().chain(banned)).refused(1, &["no token is allowed"]);
}

/// A shift that can't be is answered with what this model can have.
#[test]
fn a_context_to_shift_is_no_longer_than_the_model_s() {
    let model = tiny("llama");
    let keep = |n: &str| {
        run([
            "run",
            &model,
            "hi",
            "--context-shift",
            "-c",
            "512",
            "--keep",
            n,
        ])
    };
    keep("480").refused(1, &["the model's limit is 512", "keep less, at most 448"]);
    let short = [
        "run",
        &model,
        "hi",
        "--context-shift",
        "-c",
        "64",
        "--keep",
        "64",
    ];
    run(short).refused(1, &["--n-ctx must be at least 128"]);
}

#[test]
fn flags_that_another_flag_undoes_are_refused() {
    let model = tiny("llama");
    for (flags, needles) in [
        (
            &["--repeat-penalty", "1", "--repeat-last-n", "32"][..],
            &["--repeat-last-n does nothing", "--repeat-penalty is 1"][..],
        ),
        (
            &["--repeat-last-n", "0", "--repeat-penalty", "1.3"],
            &["--repeat-penalty does nothing", "--repeat-last-n is 0"],
        ),
        (
            &["--xtc-probability", "0.5", "--xtc-threshold", "0.6"],
            &["--xtc-probability does nothing", "--xtc-threshold is 0.6"],
        ),
        (
            &["--xtc-threshold", "0.6"],
            &["--xtc-threshold does nothing", "--xtc-probability is 0"],
        ),
        (
            &["--mirostat", "2", "--temp", "0"],
            &["--mirostat does nothing", "--temp is 0"],
        ),
        (
            &["--dry-multiplier", "1", "--dry-penalty-last-n", "0"],
            &["--dry-multiplier does nothing", "--dry-penalty-last-n is 0"],
        ),
    ] {
        run(["run", &model, "hi"].iter().chain(flags).copied()).refused(2, needles);
    }
}

#[test]
fn ids_must_be_ids_of_the_vocabulary() {
    let model = tiny("llama");
    let logits = |ids: &str| run(["logits", &model, "--ids", ids, "--json"]);
    logits("1,272,3").refused(1, &["token id 272", "vocabulary of 272"]);
    logits("1,4294967296").refused(2, &["'4294967296'"]);
    logits("1,x").refused(2, &["'x'"]);
    logits("-1").refused(2, &["-1"]);
    logits("1,,2").refused(2, &["''"]);
    logits("1,2,").refused(2, &["''"]);
    logits("").refused(1, &["prompt is empty"]);
    // Of a mistyped command, that it is no model is the news.
    run(["lst"]).refused(1, &["lst"]);
    run(["logits", &model, "--json"]).refused(2, &["--ids"]);
    run(["logits", &model, "--ids", "1"]).refused(2, &["--npy"]);
    let missing = ["logits", &model, "--ids-file", "no/such/file", "--json"];
    run(missing).refused(1, &["no/such/file"]);
}

#[test]
fn other_commands_refuse_their_bad_flags() {
    let model = tiny("llama");
    for (args, needle) in [
        (&["bench", &model, "-r", "0"][..], "--repetitions"),
        (&["bench", &model, "-r", "65537"], "from 1 to 65536"),
        (&["bench", &model, "-t", "1,0"], "--threads"),
        (&["bench", &model, "-b", "1,0"], "'0' for '--batch"),
        (&["bench", &model, "-b", "257"], "from 1 to 256"),
        (&["bench", &model, "-d", "-1"], "--n-depth"),
        (&["bench", &model, "-d", "0,,1"], "--n-depth"),
        (&["bench", &model, "--n-batch", "0"], "--n-batch"),
        (
            &["bench", &model, "--cache-type-k", "f16,q3"],
            "f32, f16 and q8_0",
        ),
        (
            &["bench", &model, "-p", "0", "-n", "0"],
            "nothing to measure",
        ),
        (
            &["bench", &model, "-n", "0", "-b", "1,8"],
            "--batch does nothing: it is of generation tests",
        ),
        (
            &["bench", &model, "-n", "0", "--sample"],
            "--sample does nothing: it is of generation tests",
        ),
        (&["chat", &model], "`chat` is planned for later"),
        (&["--cnv", &model], "`--cnv` is planned for later"),
        (&["rm", "smollm2"], "minfer list --json"),
        (&["ls"], "`minfer list` shows the cached models"),
        (&["ps"], "`ps` is no command here: a `minfer serve` has"),
        (&["show", &model], "`minfer inspect MODEL`"),
        (&["llama-server", "-m", &model], "`minfer serve MODEL`"),
        (
            &["bench", &model, "-p", "0", "--n-batch", "64"],
            "--n-batch does nothing: it is of prompts and depths",
        ),
        (
            &["bench", &model, "-p", "18446744073709551615"],
            "--n-prompt",
        ),
        (&["bench", &model, "-o", "xml"], "json"),
        (&["graph", &model], "--dot"),
        (
            &["graph", &model, "--dot", "-", "--n-tokens", "0"],
            "--n-tokens",
        ),
        (&["tokenize", &model], "TEXT"),
        (&["tokenize", &model, "a", "--file", "b"], "--file"),
        (&["inspect"], "<MODEL>"),
        (
            &["run", &model, "a", "--system", "b", "--no-template"],
            "--system",
        ),
    ] {
        run(args.iter().copied()).refused(2, &[needle]);
    }
    let nowhere = ["graph", &model, "--dot", "no/such/folder/g.dot"];
    run(nowhere).refused(1, &["no/such/folder/g.dot"]);
    let nowhere = [
        "logits",
        &model,
        "--ids",
        "1",
        "--npy",
        "no/such/folder/x.npy",
    ];
    run(nowhere).refused(1, &["no/such/folder/x.npy"]);
    let nowhere = ["tokenize", &model, "--file", "no/such/text"];
    run(nowhere).refused(1, &["no/such/text"]);
}

/// What their users type, on the same model: the answer is that of the own names.
#[test]
fn names_of_llama_cpp_that_mean_the_same_are_taken() {
    let model = tiny("llama");
    let ids = |line: &[&str]| run(line.iter().copied().chain(["--json"])).json()["ids"].clone();
    let own = [
        "run",
        &model,
        "hi",
        "-n",
        "6",
        "--n-ctx",
        "128",
        "--cache-type-k",
        "f32",
    ];
    let plain = ids(&own);
    assert_eq!(plain.as_array().unwrap().len(), 6);
    for line in [
        &[
            "-m",
            &model,
            "-p",
            "hi",
            "--predict",
            "6",
            "--ctx-size",
            "128",
            "-ctk",
            "f32",
        ][..],
        &[
            "run", "-m", &model, "hi", "-n", "6", "-c", "128", "-ctk", "f32",
        ],
        &[
            "run", "-p", "hi", "-n", "6", "-c", "128", "-ctk", "f32", "-ub", "64", "--model",
            &model,
        ],
    ] {
        assert_eq!(ids(line), plain, "{line:?}");
    }
    // llama.cpp makes a line break of \n there.
    let escaped = run([
        "run",
        "-m",
        &model,
        "-p",
        r"a\nb",
        "--no-template",
        "--json",
    ]);
    let ids = escaped.json()["prompt_ids"].as_array().map(Vec::len);
    assert!(ids >= Some(4), "{escaped:?}");
    assert_eq!(
        escaped.stderr,
        "note: -p is taken as it is: \\n stays two characters\n"
    );
    // A text is a text, whatever it looks like.
    let text = |line: &[&str]| run(line.iter().copied()).json()["prompt_ids"].clone();
    let raw = ["-n", "0", "--json", "--no-template"];
    let by_flag = text(&[&["run", &model, "-p", "-ngl"][..], &raw].concat());
    let by_place = text(&[&["run", &model][..], &raw, &["--", "-ngl"]].concat());
    assert_eq!(by_flag, by_place);
    let tokens = |line: &[&str]| run(line.iter().copied()).ok().to_owned();
    assert_eq!(
        tokens(&["tokenize", "-m", &model, "-p", "hi"]),
        tokens(&["tokenize", &model, "hi"])
    );
    assert!(run(["inspect", "--model", &model]).ok().contains("llama"));
}

#[test]
fn names_of_others_that_mean_nothing_here_are_told_with_the_way_out() {
    let model = tiny("llama");
    for (line, needles) in [
        (
            &["-ngl", "99"][..],
            &["-ngl: this build runs all layers on the CPU"][..],
        ),
        (
            &["--jinja", "-fa", "on", "--n-gpu-layers", "0"],
            &["--jinja: ", "-fa: ", "--n-gpu-layers: "],
        ),
        (&["-r", "User:"], &["-r: --stop TEXT"]),
        (&["-f", "prompt.txt"], &["-f: pipe the text in"]),
        (&["-cnv"], &["--session FILE", "minfer serve MODEL"]),
        (&["-no-cnv"], &["--no-template"]),
        (&["--num-ctx", "64"], &["--n-ctx"]),
        (&["--format", "json"], &["-j '{}'"]),
        (&["-m"], &["-m: no model is named behind it"]),
        (
            &["-m", &model, "-hf", "o/r"],
            &["-hf: a model is named already"],
        ),
        (&["-p", "more"], &["--prompt", "cannot be used with"]),
    ] {
        let line = [&["run", &model, "hi"][..], line].concat();
        run(&line).refused(2, needles);
    }
    run(["inspect", "-hf", "no-repository"]).refused(1, &["`hf:no-repository`", "hf:OWNER/REPO"]);
}

#[test]
fn a_random_seed_is_told_and_gives_the_answer_again() {
    let model = tiny("llama");
    let with = |seed: &str| {
        let line = ["run", &model, "hi", "--no-template", "-n", "12"];
        let flags = ["--temp", "2", "--json", "--seed", seed];
        run(line.iter().copied().chain(flags))
    };
    for word in ["random", "-1"] {
        let drawn = with(word);
        let said = drawn.json();
        let seed = said["seed"].as_u64().unwrap().to_string();
        let note = format!("note: the seed is {seed}\n");
        assert!(drawn.stderr.contains(&note), "{drawn:?}");
        let again = with(&seed);
        assert_eq!(again.json()["ids"], said["ids"]);
        assert_eq!(again.stderr, "");
    }
    let text = run(["run", &model, "hi", "-n", "2", "-s", "random"]);
    text.ok();
    let noted = text
        .stderr
        .lines()
        .find_map(|l| l.strip_prefix("note: the seed is "));
    let last = text.stderr.lines().last().unwrap();
    assert!(
        last.ends_with(&format!(" | seed {}", noted.unwrap())),
        "{last}"
    );
    assert_eq!(with("9").json()["seed"], 9);
}

#[test]
fn a_file_with_the_name_of_a_planned_command_is_run() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(tiny("llama"), dir.path().join("chat")).unwrap();
    let mut command = minfer(["chat", "hi", "-n", "2", "--json"]);
    let out = finish(spawn(command.current_dir(&dir)));
    assert_eq!(out.json()["ids"].as_array().unwrap().len(), 2);
}

#[test]
fn a_machine_that_this_cpu_lacks_is_refused() {
    let foreign = match cfg!(target_arch = "aarch64") {
        true => "avx2",
        false => "neon",
    };
    for (name, needle) in [("pentium", "unknown"), (foreign, "lacks")] {
        let mut command = minfer(["run", &tiny("llama"), "hi"]);
        let out = finish(spawn(command.env("MINFER_CPU", name)));
        out.refused(1, &["MINFER_CPU", name, needle, "scalar"]);
    }
    let mut command = minfer(["list"]);
    let out = finish(spawn(command.env("MINFER_LOG", "minfer=loud")));
    out.refused(2, &["MINFER_LOG", "minfer=loud"]);
}

#[test]
fn without_arguments_the_help_is_shown_as_wrong_usage() {
    let out = run::<&str>([]);
    assert_eq!((out.code, out.stdout.as_str()), (Some(2), ""));
    assert!(out.stderr.contains("Usage: minfer"), "{out:?}");
    let help = run(["--help"]);
    assert!(
        help.ok().starts_with("Run GGUF language models"),
        "{help:?}"
    );
    assert!(help.stdout.contains("minfer MODEL [PROMPT]"), "{help:?}");
    assert!(run(["run", "--help"]).ok().contains("--logit-bias"));
    assert!(run(["--version"]).ok().starts_with("minfer "));
}
