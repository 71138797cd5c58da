//! Models split over files: `NAME-00001-of-00003.gguf` and its siblings.
//!
//! Keys and names are those of llama.cpp's `gguf-split`: `split.no` (0-based), `split.count`,
//! `split.tensors.count`; in file names parts count from 1, with five digits.

use std::path::{Path, PathBuf};

use super::error::{Fault, GgufError, shown};
use super::metadata::Metadata;

/// What a part says about the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SplitKeys {
    /// This part, from 0.
    no: u32,
    /// Number of parts, at least 2.
    count: u32,
    /// Tensors in all parts, if it says so.
    tensors: Option<u64>,
}

impl SplitKeys {
    /// `None` for a model in one file.
    pub(super) fn of(metadata: &Metadata) -> Result<Option<SplitKeys>, Fault> {
        let wrong = |e: GgufError| Fault::Split(e.to_string());
        let count = match metadata.u32("split.count").map_err(wrong)? {
            None | Some(0 | 1) => return Ok(None),
            Some(count) => count,
        };
        let no = metadata.u32("split.no").map_err(wrong)?;
        let tensors = metadata.u64("split.tensors.count").map_err(wrong)?;
        match no {
            Some(no) if no < count => Ok(Some(SplitKeys { no, count, tensors })),
            Some(no) => Err(Fault::Split(format!(
                "`split.no` is {no}, but `split.count` is {count}"
            ))),
            None => Err(Fault::Split(format!(
                "`split.count` is {count}, but `split.no` is missing"
            ))),
        }
    }

    /// `2 of 3`, counting from 1.
    fn place(self) -> String {
        format!("{} of {}", self.no.saturating_add(1), self.count)
    }
}

/// The end of the name of part `no` (0-based).
fn suffix(no: u32, count: u32) -> String {
    format!("-{:05}-of-{count:05}.gguf", no.saturating_add(1))
}

/// The other parts of the model whose first part is at `path`: their numbers and paths, one by one.
pub(super) fn others(
    path: &Path,
    keys: SplitKeys,
) -> Result<impl Iterator<Item = (u32, PathBuf)> + use<>, Fault> {
    let SplitKeys { no, count, .. } = keys;
    let name = path
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let Some(stem) = name.strip_suffix(&suffix(no, count)).map(str::to_owned) else {
        return Err(Fault::Split(format!(
            "it is part {} of a split model, but its name does not end in `{}`, so the other parts can't be found",
            keys.place(),
            suffix(no, count)
        )));
    };
    if no != 0 {
        let first = shown(&format!("{stem}{}", suffix(0, count)));
        return Err(Fault::Split(format!(
            "it is part {} of a split model: open `{first}`",
            keys.place()
        )));
    }
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    Ok((1..count).map(move |i| (i, folder.join(format!("{stem}{}", suffix(i, count))))))
}

/// Checks that a file that was opened as part `no` is that part of the same model.
pub(super) fn check_part(found: Option<SplitKeys>, no: u32, first: SplitKeys) -> Result<(), Fault> {
    let wanted = SplitKeys { no, ..first };
    match found {
        Some(f) if f.no == no && f.count == first.count => Ok(()),
        Some(f) => Err(Fault::Split(format!(
            "it says that it is part {}, not {}",
            f.place(),
            wanted.place()
        ))),
        None => Err(Fault::Split(format!(
            "it says nothing of being part {}",
            wanted.place()
        ))),
    }
}

/// Checks `split.tensors.count` against what all parts hold.
pub(super) fn check_total(keys: SplitKeys, found: usize) -> Result<(), Fault> {
    match keys.tensors {
        Some(n) if n != found as u64 => Err(Fault::Split(format!(
            "`split.tensors.count` is {n}, but the parts hold {found} tensors"
        ))),
        _ => Ok(()),
    }
}

/// The error for a part that came without a path.
pub(super) fn alone(keys: SplitKeys) -> Fault {
    Fault::Split(format!(
        "it is part {} of a split model: open it by its path",
        keys.place()
    ))
}
