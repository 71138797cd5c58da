//! The flags that constrain the output.

use std::path::PathBuf;

use clap::Args;
use minfer::sampling::ConstraintSpec;

use crate::files;
use crate::output::Failure;

/// What the output is to be like: one of these, or anything.
#[derive(Args, Clone, Default)]
#[group(id = "constraint", multiple = false)]
pub struct ConstraintArgs {
    /// Constrain the output to a grammar (llama.cpp's GBNF).
    #[arg(long, value_name = "GBNF", help_heading = "Constrained output")]
    pub grammar: Option<String>,
    /// Read the grammar (GBNF) from a file.
    #[arg(long, value_name = "F", help_heading = "Constrained output")]
    pub grammar_file: Option<PathBuf>,
    /// Constrain the output to JSON that a JSON schema allows; {}: any JSON.
    #[arg(
        short,
        long,
        value_name = "SCHEMA",
        help_heading = "Constrained output"
    )]
    pub json_schema: Option<String>,
    /// Read the JSON schema from a file.
    #[arg(long, value_name = "F", help_heading = "Constrained output")]
    pub json_schema_file: Option<PathBuf>,
    /// Constrain the output to what a regular expression matches as a whole.
    #[arg(long, value_name = "RE", help_heading = "Constrained output")]
    pub regex: Option<String>,
    /// Constrain the output to a grammar in llguidance's Lark.
    #[arg(long, value_name = "GRAMMAR", help_heading = "Constrained output")]
    pub lark: Option<String>,
    /// Read the Lark grammar from a file.
    #[arg(long, value_name = "F", help_heading = "Constrained output")]
    pub lark_file: Option<PathBuf>,
}

impl ConstraintArgs {
    /// What the flags ask for, files read, and looked at as far as that needs no model.
    ///
    /// # Errors
    /// A file that can't be read or is no text, and a spec that can't be followed, by the file's name.
    pub fn spec(&self) -> Result<Option<ConstraintSpec>, Failure> {
        type Kind = fn(String) -> ConstraintSpec;
        let flags: [(&Option<String>, &Option<PathBuf>, Kind); 4] = [
            (&self.grammar, &self.grammar_file, ConstraintSpec::Gbnf),
            (
                &self.json_schema,
                &self.json_schema_file,
                ConstraintSpec::JsonSchema,
            ),
            (&self.regex, &None, ConstraintSpec::Regex),
            (&self.lark, &self.lark_file, ConstraintSpec::Lark),
        ];
        // The parser lets only one through.
        for (text, file, kind) in flags {
            if let Some(text) = text {
                let spec = kind(text.clone());
                spec.check()?;
                return Ok(Some(spec));
            }
            if let Some(file) = file {
                let text = files::read_text(file)?;
                // Some editors put a byte order mark in front, which is no part of the text.
                let spec = kind(text.trim_start_matches('\u{feff}').to_owned());
                let named = |e| Failure::Error(format!("{}: {e}", files::name_of(file)));
                spec.check().map_err(named)?;
                return Ok(Some(spec));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        constraint: ConstraintArgs,
        /// `run`'s own.
        #[arg(long)]
        json: bool,
    }

    fn parse(args: &[&str]) -> Result<Line, clap::Error> {
        Line::try_parse_from(std::iter::once("minfer").chain(args.iter().copied()))
    }

    fn spec(args: &[&str]) -> Option<ConstraintSpec> {
        parse(args).unwrap().constraint.spec().unwrap()
    }

    #[test]
    fn each_flag_gives_its_kind() {
        assert_eq!(spec(&[]), None);
        assert_eq!(spec(&["--json"]), None);
        assert!(parse(&["--json", "-j", "{}"]).unwrap().json);
        let gbnf = ConstraintSpec::Gbnf("root ::= \"a\"".to_owned());
        assert_eq!(spec(&["--grammar", "root ::= \"a\""]), Some(gbnf));
        let schema = ConstraintSpec::JsonSchema("{}".to_owned());
        assert_eq!(spec(&["-j", "{}"]), Some(schema.clone()));
        assert_eq!(spec(&["--json-schema", "{}"]), Some(schema));
        assert_eq!(
            spec(&["--regex", "a+"]),
            Some(ConstraintSpec::Regex("a+".to_owned()))
        );
        assert_eq!(
            spec(&["--lark", "start: /a/"]),
            Some(ConstraintSpec::Lark("start: /a/".to_owned()))
        );
    }

    #[test]
    fn files_are_read_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("g.gbnf");
        std::fs::write(&file, "root ::= \"b\"\n").unwrap();
        let file = file.to_str().unwrap();
        let text = "root ::= \"b\"\n".to_owned();
        assert_eq!(
            spec(&["--grammar-file", file]),
            Some(ConstraintSpec::Gbnf(text))
        );
        std::fs::write(file, "\u{feff}{}").unwrap();
        assert_eq!(
            spec(&["--json-schema-file", file]),
            Some(ConstraintSpec::JsonSchema("{}".to_owned()))
        );
        std::fs::write(file, "start: /a/").unwrap();
        assert_eq!(
            spec(&["--lark-file", file]),
            Some(ConstraintSpec::Lark("start: /a/".to_owned()))
        );
        std::fs::write(file, "start: b").unwrap();
        let Err(Failure::Error(e)) = parse(&["--lark-file", file]).unwrap().constraint.spec()
        else {
            panic!()
        };
        assert!(e.starts_with(file) && e.contains("Lark"), "{e}");
        let missing = parse(&["--grammar-file", "/nowhere/g.gbnf"]).unwrap();
        let Err(Failure::Error(e)) = missing.constraint.spec() else {
            panic!()
        };
        assert!(e.starts_with("/nowhere/g.gbnf: "), "{e}");
        std::fs::write(file, [0xff, 0xfe]).unwrap();
        let Err(Failure::Error(e)) = parse(&["--lark-file", file]).unwrap().constraint.spec()
        else {
            panic!()
        };
        assert!(e.contains("UTF-8"), "{e}");
    }

    #[test]
    fn two_constraints_are_refused() {
        for two in [
            ["--grammar", "a", "--regex", "b"],
            ["-j", "{}", "--json-schema-file", "f"],
            ["--lark", "a", "--lark-file", "f"],
        ] {
            let e = parse(&two).err().unwrap().to_string();
            assert!(e.contains("cannot be used with"), "{e}");
        }
    }
}
