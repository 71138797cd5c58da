//! llama.cpp's and Ollama's names of flags: what means the same here is taken, of the rest it is said what to do instead. Long names
//! that mean the same are aliases in the parser; here is what the parser has no words for.

use std::ffi::{OsStr, OsString};

use clap::{Command, CommandFactory};

use super::Cli;
use super::planned::CHAT;

/// What a name comes to here.
#[derive(Clone, Copy)]
enum Here {
    /// This flag.
    Flag(&'static str),
    /// Its value is the MODEL, behind this scheme.
    Model(&'static str),
    /// Nothing: what to do instead.
    Nothing(&'static str),
}
use Here::{Flag, Model, Nothing};

const CPU: &str = "this build runs all layers on the CPU, so leave it out";
const SHOWN: &str = "MINFER_LOG=debug in the environment shows more; timings are always shown";
const PLACED: &str =
    "where threads run is the system's business (taskset, numactl), so leave it out";
const GUESSES: &str = "how far --draft guesses is found out while it goes, so leave it out";
const FETCHED: &str = "fetch the file otherwise, and give its path";
const FIELDS: &str = "it is a field of requests to `minfer serve`";
const ALWAYS: &str = "it is always like that, so leave it out";
const MAPPED: &str =
    "weights are copied into memory, and with --no-pack they stay in the file's mapping";
const ROPE: &str = "what the model's file says is followed, so leave it out";
const STEP: &str =
    "how many prompt tokens go through in one step is --n-batch (llama.cpp: --ubatch-size)";
const ESCAPES: &str = "texts are taken as they are: have the shell write line breaks, as $'a\\nb'";
const TEMPLATE: &str =
    "the model's own template is followed; with --no-template the prompt may have another's form";
const LORA: &str =
    "LoRA is planned for later, and llama.cpp's llama-export-lora writes it into a model's file";
const TIMEOUT: &str = "--request-timeout is of a request and its answer, --idle-timeout of silence";

/// Names of one meaning, for commands that have a MODEL and no flag of that name.
const NAMES: &[(&str, Here)] = &[
    ("-m --model", Model("")),
    ("-hf -hfr --hf-repo", Model("hf:")),
    ("-ctk", Flag("--cache-type-k")),
    ("-ctv", Flag("--cache-type-v")),
    ("-ub", Flag("--n-batch")),
    ("-sys", Flag("--system")),
    ("-jf", Flag("--json-schema-file")),
    ("-md --spec-draft-model", Flag("--draft")),
    ("-np", Flag("--parallel")),
    ("-npl", Flag("--batch")),
    ("-npp", Flag("--n-prompt")),
    ("-ntg", Flag("--n-gen")),
    (
        "-ngl --ngl --gpu-layers --n-gpu-layers -dev --device",
        Nothing(CPU),
    ),
    (
        "-sm --split-mode -ts --tensor-split -mg --main-gpu",
        Nothing(CPU),
    ),
    (
        "-nkvo --no-kv-offload -cmoe --cpu-moe -ncmoe --n-cpu-moe",
        Nothing(CPU),
    ),
    (
        "-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl",
        Nothing(CPU),
    ),
    (
        "-fit --fit -ot --override-tensor --list-devices",
        Nothing(CPU),
    ),
    ("--numa --prio --poll", Nothing(PLACED)),
    (
        "-C --cpu-mask -Cr --cpu-range --cpu-strict",
        Nothing(PLACED),
    ),
    (
        "-tb --threads-batch",
        Nothing("--threads is for prompts and answers alike"),
    ),
    (
        "--mlock",
        Nothing("memory can't be locked, so leave it out"),
    ),
    ("--no-mmap -mmp --mmap -lm --load-mode", Nothing(MAPPED)),
    (
        "-nr --no-repack",
        Nothing("--no-pack leaves the weights as they are in the file"),
    ),
    (
        "--rope-scaling --rope-scale --rope-freq-base",
        Nothing(ROPE),
    ),
    (
        "--rope-freq-scale --yarn-orig-ctx --override-kv",
        Nothing(ROPE),
    ),
    (
        "-fa --flash-attn",
        Nothing("attention is always computed in one go, so leave it out"),
    ),
    ("--batch-size", Nothing(STEP)),
    (
        "--num-ctx --num_ctx --context-size --n_ctx",
        Nothing("it is --n-ctx (-c) here"),
    ),
    (
        "--num-predict --num_predict --max-tokens",
        Nothing("it is --n-predict (-n) here"),
    ),
    (
        "-f --file -bf --binary-file",
        Nothing("pipe the text in: minfer run MODEL < FILE"),
    ),
    (
        "-sysf --system-prompt-file",
        Nothing("--system \"$(cat FILE)\" does it"),
    ),
    ("-e --escape", Nothing(ESCAPES)),
    (
        "-r --reverse-prompt",
        Nothing("--stop TEXT ends the answer at a text"),
    ),
    (
        "--jinja",
        Nothing("the model's chat template is always followed, so leave it out"),
    ),
    (
        "--chat-template --chat-template-file --template",
        Nothing(TEMPLATE),
    ),
    (
        "--no-jinja --raw",
        Nothing("--no-template completes the prompt as it is"),
    ),
    (
        "-no-cnv --no-conversation",
        Nothing("--no-template completes the prompt as it is"),
    ),
    ("-cnv --cnv --conversation", Nothing(CHAT)),
    ("-i --interactive -if --interactive-first", Nothing(CHAT)),
    (
        "-st --single-turn",
        Nothing("one prompt has one answer, so leave it out"),
    ),
    (
        "--no-display-prompt --no-escape --no-context-shift",
        Nothing(ALWAYS),
    ),
    (
        "--no-warmup --nowordwrap -cb --cont-batching --simple-io",
        Nothing(ALWAYS),
    ),
    (
        "--embedding --embeddings --metrics --slots",
        Nothing(ALWAYS),
    ),
    (
        "-o --output --output-file",
        Nothing("answers go to stdout: minfer run MODEL PROMPT > FILE"),
    ),
    (
        "-co --color",
        Nothing("answers have no colours, so leave it out"),
    ),
    ("-v --verbose --log-verbose -lv --verbosity", Nothing(SHOWN)),
    ("--log-verbosity --log-disable --log-file", Nothing(SHOWN)),
    (
        "-hff --hf-file",
        Nothing("name the file in -hf OWNER/REPO:FILE.gguf"),
    ),
    (
        "-hft --hf-token -mu --model-url -dr --docker-repo",
        Nothing(FETCHED),
    ),
    (
        "--prompt-cache --prompt-cache-all",
        Nothing("--session FILE keeps a conversation"),
    ),
    (
        "--draft-max --draft-n --draft-min --draft-n-min",
        Nothing(GUESSES),
    ),
    (
        "--draft-p-min --draft-p-split -cd --ctx-size-draft",
        Nothing(GUESSES),
    ),
    (
        "--spec-draft-n-max --spec-draft-n-min --spec-draft-p-min",
        Nothing(GUESSES),
    ),
    (
        "--spec-type --spec-default",
        Nothing("--draft MODEL and --lookup guess tokens"),
    ),
    (
        "-hfd -hfrd --hf-repo-draft",
        Nothing("--draft hf:OWNER/REPO[:QUANT] does it"),
    ),
    ("--lora --lora-scaled", Nothing(LORA)),
    (
        "-mm --mmproj --image --audio --video",
        Nothing("images are planned for later, sound is not"),
    ),
    ("--rerank --reranking", Nothing("it is planned for later")),
    (
        "-a --alias",
        Nothing("`minfer serve NAME=MODEL` names a model"),
    ),
    (
        "--models-dir",
        Nothing("name each model: minfer serve NAME=MODEL NAME=MODEL"),
    ),
    ("-to --timeout", Nothing(TIMEOUT)),
    ("--ssl-key-file", Nothing("it is --tls-key here")),
    ("--ssl-cert-file", Nothing("it is --tls-cert here")),
    (
        "--format",
        Nothing("-j '{}' holds the answer to JSON, -j SCHEMA to that of a schema"),
    ),
    (
        "--keepalive",
        Nothing("--keep-alive SECONDS of `minfer serve` says when an idle model goes"),
    ),
    (
        "--think --hidethinking --reasoning-format -rea --reasoning",
        Nothing(FIELDS),
    ),
    ("--reasoning-budget --chat-template-kwargs", Nothing(FIELDS)),
    (
        "--kl-divergence --kl-divergence-base",
        Nothing("--kl-base MODEL compares with another model"),
    ),
    ("--no-bos", Nothing("--no-special adds no BOS and no EOS")),
];

/// The arguments with the command's own names.
///
/// # Errors
/// What can't be said here, each name with what to do instead; a MODEL that is named twice, or not behind its flag.
pub fn with_own_names(argv: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let cli = Cli::command();
    let name = argv.get(1).and_then(|a| a.to_str());
    let Some(command) = name.and_then(|name| cli.find_subcommand(name)) else {
        return Ok(argv);
    };
    let mut reader = Reader {
        command,
        models: Vec::new(),
        others: Vec::new(),
        nothing: Vec::new(),
    };
    let mut said = argv.into_iter();
    let mut all: Vec<OsString> = said.by_ref().take(2).collect();
    while let Some(arg) = said.next() {
        if arg == "--" {
            // Nothing behind it is a flag.
            reader.others.push(arg);
            reader.others.extend(said.by_ref());
        } else {
            reader.take(arg, &mut said)?;
        }
    }
    if !reader.nothing.is_empty() {
        return Err(reader.nothing.join("; "));
    }
    all.append(&mut reader.models);
    all.append(&mut reader.others);
    Ok(all)
}

/// What was said, sorted.
struct Reader<'a> {
    command: &'a Command,
    /// MODELs given by a flag; they come first, where the command has its own.
    models: Vec<OsString>,
    others: Vec<OsString>,
    /// What there is nothing for.
    nothing: Vec<String>,
}

impl Reader<'_> {
    fn take(
        &mut self,
        arg: OsString,
        rest: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), String> {
        let (name, value) = match arg.to_str() {
            Some(text) if text.starts_with("--") => match text.split_once('=') {
                Some((name, value)) => (name, Some(OsString::from(value))),
                None => (text, None),
            },
            Some(text) if text.starts_with('-') => (text, None),
            _ => {
                self.others.push(arg);
                return Ok(());
            }
        };
        if let Some(takes_value) = own(self.command, name) {
            // What follows is its value, whatever it looks like.
            let value = (takes_value && value.is_none()).then(|| rest.next());
            self.others.push(arg.clone());
            self.others.extend(value.flatten());
            return Ok(());
        }
        let known = NAMES.iter().find(|n| n.0.split(' ').any(|n| n == name));
        let models = many_models(self.command);
        match known.filter(|_| models.is_some()).map(|n| n.1) {
            Some(Nothing(why)) => self.nothing.push(format!("{name}: {why}")),
            Some(Flag(flag)) if own(self.command, flag).is_some() => {
                self.others.push(flag.into());
                self.others.extend(value.or_else(|| rest.next()));
            }
            Some(Model(scheme)) => {
                let value = value.or_else(|| rest.next());
                self.model(name, scheme, value.as_deref())?;
            }
            _ => self.others.push(arg),
        }
        Ok(())
    }

    fn model(&mut self, name: &str, scheme: &str, value: Option<&OsStr>) -> Result<(), String> {
        let value = value.filter(|v| !v.is_empty() && !v.to_string_lossy().starts_with('-'));
        let Some(value) = value else {
            return Err(format!("{name}: no model is named behind it"));
        };
        if !self.models.is_empty() && many_models(self.command) != Some(true) {
            return Err(format!(
                "{name}: a model is named already, and one is run at a time"
            ));
        }
        let mut model = OsString::from(scheme);
        model.push(value);
        self.models.push(model);
        Ok(())
    }
}

/// Whether the command has a flag of this name, and whether a value follows it.
fn own(command: &Command, name: &str) -> Option<bool> {
    let is_it = |a: &&clap::Arg| match name.strip_prefix("--") {
        Some(long) => {
            let names = a.get_long().into_iter();
            let others = a.get_all_aliases().unwrap_or_default();
            names.chain(others).any(|n| n == long)
        }
        None => {
            let short = a.get_short();
            let mut letters = name.chars().skip(1);
            letters.next() == short && short.is_some() && letters.next().is_none()
        }
    };
    let flag = command.get_arguments().find(is_it)?;
    Some(flag.get_action().takes_values())
}

/// Whether the command has MODELs, and may have several.
fn many_models(command: &Command) -> Option<bool> {
    let mut names = command.get_positionals().map(|a| a.get_id().as_str());
    names.find_map(|id| match id {
        "model" => Some(false),
        "models" => Some(true),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<String, String> {
        let argv = line.split(' ').map(OsString::from).collect();
        let read = with_own_names(argv)?;
        Ok(read.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn what_means_the_same_is_taken() {
        for (given, own) in [
            ("minfer run -m a.gguf -p hi", "minfer run a.gguf -p hi"),
            (
                "minfer run -n 4 hi --model=a.gguf",
                "minfer run a.gguf -n 4 hi",
            ),
            (
                "minfer run -hf o/r:Q4_K_M hi",
                "minfer run hf:o/r:Q4_K_M hi",
            ),
            (
                "minfer run a -ctk q8_0 -ctv f32",
                "minfer run a --cache-type-k q8_0 --cache-type-v f32",
            ),
            (
                "minfer run a -ub 64 -sys x -jf s -md d",
                "minfer run a --n-batch 64 --system x --json-schema-file s --draft d",
            ),
            (
                "minfer run a --spec-draft-model=d",
                "minfer run a --draft d",
            ),
            (
                "minfer serve -m a -m b=c -np 2",
                "minfer serve a b=c --parallel 2",
            ),
            (
                "minfer bench -m a -p 8 -n 8 -npl 2 -ub 8",
                "minfer bench a -p 8 -n 8 --batch 2 --n-batch 8",
            ),
            ("minfer perplexity -m a -f t", "minfer perplexity a -f t"),
            ("minfer pull -hf o/r", "minfer pull hf:o/r"),
        ] {
            assert_eq!(read(given).as_deref(), Ok(own));
        }
    }

    #[test]
    fn what_is_no_name_of_others_stays() {
        for line in [
            "minfer",
            "minfer list --json",
            "minfer run a -n -1 --seed -1",
            // A value, whatever it looks like.
            "minfer run a -p -ngl",
            "minfer run a --stop -m",
            "minfer run a --stop=-m x",
            // No flags.
            "minfer run a -- -m -ngl",
            "minfer run a -m=b",
            // Not of this command.
            "minfer list -m",
            "minfer tokenize a -ctk f16",
            // Its own.
            "minfer bench a -r 1 -b 2 --no-warmup",
            "minfer run --help",
        ] {
            assert_eq!(read(line).as_deref(), Ok(line));
        }
    }

    #[test]
    fn what_there_is_nothing_for_is_told_all_at_once() {
        let said = read("minfer run a -ngl 99 --jinja -fa hi").unwrap_err();
        let parts: Vec<&str> = said.split("; -").collect();
        assert!(
            said.starts_with("-ngl: this build runs all layers on the CPU"),
            "{said}"
        );
        assert!(
            parts.len() == 3 && said.contains("; --jinja: ") && said.contains("; -fa: "),
            "{said}"
        );
        for line in ["minfer run -m", "minfer run -m -n 4", "minfer run -hf"] {
            let said = read(line).unwrap_err();
            assert!(said.ends_with(": no model is named behind it"), "{said}");
        }
        let said = read("minfer run -m a -m b").unwrap_err();
        assert!(said.contains("named already"), "{said}");
    }

    #[test]
    fn a_name_stands_for_one_thing_and_the_flags_that_are_named_are_there() {
        let all: Vec<&str> = NAMES.iter().flat_map(|n| n.0.split(' ')).collect();
        for (i, name) in all.iter().enumerate() {
            assert!(!all[..i].contains(name), "{name} is there twice");
        }
        let cli = Cli::command();
        let somewhere = |flag: &str| cli.get_subcommands().any(|c| own(c, flag).is_some());
        for (_, here) in NAMES {
            match here {
                Flag(flag) => assert!(somewhere(flag), "{flag}"),
                Model(_) => {}
                Nothing(why) => {
                    let flags = why
                        .split([' ', ';', ',', ')'])
                        .filter(|w| w.starts_with("--"));
                    flags.for_each(|flag| assert!(somewhere(flag), "{why}"));
                }
            }
        }
    }
}
