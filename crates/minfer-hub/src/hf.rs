//! The public model hub: which file of a repository, and its checksum.

use serde_json::Value;

use crate::http::Client;
use crate::{HubError, spec};

/// The quantization that is taken where none is named.
pub const DEFAULT_QUANT: &str = "Q4_K_M";

/// A model file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoFile {
    /// Its path in the repository.
    pub name: String,
    /// Its size, bytes.
    pub size: Option<u64>,
    /// Its SHA-256, in hex, where the hub states one.
    pub sha256: Option<String>,
}

/// The model files of `repo` on the hub at `endpoint`.
pub fn files(client: &Client, endpoint: &str, repo: &str) -> Result<Vec<RepoFile>, HubError> {
    let list = client.json(&format!(
        "{endpoint}/api/models/{repo}/revision/main?blobs=true"
    ))?;
    let siblings = list.get("siblings").and_then(Value::as_array);
    let mut files: Vec<RepoFile> = siblings
        .into_iter()
        .flatten()
        .filter_map(repo_file)
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn repo_file(entry: &Value) -> Option<RepoFile> {
    let name = entry.get("rfilename")?.as_str()?;
    let lfs = entry.get("lfs");
    let sha256 = lfs
        .and_then(|l| l.get("sha256"))
        .and_then(Value::as_str)
        .map(str::to_lowercase);
    let size = entry
        .get("size")
        .or_else(|| lfs.and_then(|l| l.get("size")));
    // The name becomes a path of the cache.
    (name.to_ascii_lowercase().ends_with(".gguf") && spec::is_relative(name)).then(|| RepoFile {
        name: name.to_owned(),
        size: size.and_then(Value::as_u64),
        sha256,
    })
}

/// Where a file of a repository can be had.
pub fn url(endpoint: &str, repo: &str, file: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    let mut path = String::new();
    for byte in file.bytes() {
        if plain(byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    format!("{endpoint}/{repo}/resolve/main/{path}")
}

/// The file that `pick` means, with all its parts where it is split, in order. `pick` is a file's
/// name or a quantization; none means Q4_K_M, or the only one there is. Projectors of other
/// modalities (`mmproj`) are no models.
pub fn choose<'a>(names: &'a [&'a str], pick: Option<&str>) -> Result<Vec<&'a str>, String> {
    let models = || {
        names
            .iter()
            .copied()
            .filter(|n| !n.to_ascii_lowercase().contains("mmproj"))
    };
    let hits: Vec<&str> = match pick {
        Some(pick) if pick.to_ascii_lowercase().ends_with(".gguf") => names
            .iter()
            .copied()
            .filter(|n| *n == pick || stem(n) == stem(pick))
            .collect(),
        Some(quant) => models().filter(|n| has_quant(n, quant)).collect(),
        None => {
            let default: Vec<&str> = models().filter(|n| has_quant(n, DEFAULT_QUANT)).collect();
            if default.is_empty() {
                models().collect()
            } else {
                default
            }
        }
    };
    let Some(first) = hits.first() else {
        return Err(match pick {
            Some(pick) => format!("no model file for `{pick}`"),
            None => "no model file".to_owned(),
        });
    };
    if hits.iter().any(|n| stem(n) != stem(first)) {
        return Err(match pick {
            Some(pick) => format!("several model files for `{pick}`: name one"),
            None => format!("several model files and no {DEFAULT_QUANT}: name one"),
        });
    }
    Ok(hits)
}

/// A file's name without the number of its part (`-00001-of-00003.gguf`): parts share it.
pub fn stem(name: &str) -> &str {
    let whole = name
        .get(..name.len().saturating_sub(".gguf".len()))
        .unwrap_or(name);
    let digits = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
    let split = whole.rsplit_once("-of-").and_then(|(front, count)| {
        let (stem, number) = front.rsplit_once('-')?;
        (digits(count) && digits(number)).then_some(stem)
    });
    split.unwrap_or(whole)
}

/// Whether `parts` (as [`choose`] returns them) are all there are: one whole file, or as many as each
/// name says.
pub fn complete(parts: &[&str]) -> bool {
    let Some(first) = parts.first() else {
        return false;
    };
    let whole = first
        .get(..first.len().saturating_sub(".gguf".len()))
        .unwrap_or(first);
    if whole == stem(first) {
        return parts.len() == 1;
    }
    let count = whole.rsplit("-of-").next().and_then(|n| n.parse().ok());
    count == Some(parts.len())
}

/// Whether `quant` is a whole word of the name: `Q4_K` is none of `…-Q4_K_M.gguf`.
fn has_quant(name: &str, quant: &str) -> bool {
    let (name, quant) = (name.to_ascii_uppercase(), quant.to_ascii_uppercase());
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.match_indices(quant.as_str()).any(|(at, hit)| {
        let before = name.get(..at).and_then(|s| s.chars().next_back());
        let after = name
            .get(at.saturating_add(hit.len())..)
            .and_then(|s| s.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &[
        "m-Q4_K_M.gguf",
        "m-Q4_K_S.gguf",
        "m.Q8_0-00001-of-00002.gguf",
        "m.Q8_0-00002-of-00002.gguf",
        "mmproj-Q8_0.gguf",
        "sub/m-f16.gguf",
    ];

    #[test]
    fn quantizations_are_whole_words() {
        assert_eq!(choose(NAMES, Some("q4_k_m")).unwrap(), ["m-Q4_K_M.gguf"]);
        assert_eq!(choose(NAMES, Some("F16")).unwrap(), ["sub/m-f16.gguf"]);
        assert!(
            choose(NAMES, Some("Q4_K"))
                .unwrap_err()
                .contains("no model file for `Q4_K`")
        );
    }

    #[test]
    fn the_default_and_the_only_one() {
        assert_eq!(choose(NAMES, None).unwrap(), ["m-Q4_K_M.gguf"]);
        assert_eq!(choose(&["x-f32.gguf"], None).unwrap(), ["x-f32.gguf"]);
        assert!(
            choose(&["x-f32.gguf", "x-f16.gguf"], None)
                .unwrap_err()
                .contains("name one")
        );
        assert!(choose(&[], None).is_err());
    }

    #[test]
    fn split_files_go_together() {
        let parts = ["m.Q8_0-00001-of-00002.gguf", "m.Q8_0-00002-of-00002.gguf"];
        assert_eq!(choose(NAMES, Some("Q8_0")).unwrap(), parts);
        assert_eq!(choose(NAMES, Some(parts[0])).unwrap(), parts);
        assert!(complete(&parts) && !complete(&parts[1..]) && complete(&NAMES[..1]));
        assert_eq!(
            choose(NAMES, Some("mmproj-Q8_0.gguf")).unwrap(),
            ["mmproj-Q8_0.gguf"]
        );
    }

    #[test]
    fn names_are_escaped() {
        let want = "http://h/o/r/resolve/main/a%20b/c%23.gguf";
        assert_eq!(url("http://h", "o/r", "a b/c#.gguf"), want);
    }
}
