//! The bytes of a file: mapped, or in memory.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

use super::error::GgufError;

/// The bytes of one file.
#[derive(Debug)]
pub(super) enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps a regular file. Reads nothing: pages come in when they are touched.
    ///
    /// # Errors
    /// A directory, a missing or unreadable file, anything that is no regular file (opening a pipe would block).
    pub(super) fn map(path: &Path) -> Result<Bytes, GgufError> {
        let failed = |source| GgufError::Open {
            path: path.to_owned(),
            source,
        };
        let kind = fs::metadata(path).map_err(failed)?;
        if kind.is_dir() {
            return Err(GgufError::Directory {
                path: path.to_owned(),
            });
        }
        if !kind.is_file() {
            return Err(failed(io::Error::other("it is not a regular file")));
        }
        let file = File::open(path).map_err(failed)?;
        // SAFETY: the mapping is read-only, lives as long as this value, and is handed out only as
        // `&[u8]` tied to it. That nobody changes the file meanwhile can't be checked. What is
        // promised: this process never writes to it; the header is checked and copied out while
        // the file is opened, and nothing that is read later serves as a length, an offset or
        // text: bytes that another process changes after that are other weights, never another
        // address. A file that is cut short while it is mapped ends the process with SIGBUS at
        // the next touch of the missing part. So models are replaced by renaming a new file over
        // the old name, never by writing into it.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Ok(Bytes::Mapped(map))
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }

    /// Tells the system that a range will be read: it may begin to bring it into memory.
    ///
    /// This and the two below do nothing for bytes in memory, for ranges outside the file and on systems
    /// without such a call.
    pub(super) fn fetch(&self, range: Range<usize>) {
        #[cfg(unix)]
        self.advise(range, memmap2::Advice::WillNeed);
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Maps the pages of a range, reading those that are not in memory: together they cost less than one by
    /// one at their first touch.
    pub(super) fn populate(&self, range: Range<usize>) {
        #[cfg(target_os = "linux")]
        self.advise(range, memmap2::Advice::PopulateRead);
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }

    #[cfg(unix)]
    fn advise(&self, range: Range<usize>, advice: memmap2::Advice) {
        let Some((map, len)) = self.mapped(&range) else {
            return;
        };
        if let Err(e) = map.advise_range(advice, range.start, len) {
            tracing::debug!("madvise({advice:?}) was refused: {e}");
        }
    }

    /// The mapping and the range's length, if it has any bytes there.
    #[cfg(unix)]
    fn mapped(&self, range: &Range<usize>) -> Option<(&Mmap, usize)> {
        let Bytes::Mapped(map) = self else {
            return None;
        };
        let len = map.get(range.clone()).map_or(0, <[u8]>::len);
        (len > 0).then_some((map, len))
    }

    /// Tells the system that the pages of a range are not needed for now. They are read again
    /// from the file if they are touched again.
    pub(super) fn release(&self, range: Range<usize>) {
        /// A touch of one page maps those around it too, this far: they go with the range.
        const AROUND: usize = 64 << 10;
        let range = range.start.saturating_sub(AROUND)..range.end;
        #[cfg(unix)]
        if let Some((map, len)) = self.mapped(&range) {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the range lies inside the mapping (`mapped`). The mapping is of a file,
            // read-only and never written to, so a page that is dropped holds the file's bytes
            // when it comes back: no `&[u8]` sees a change.
            if let Err(e) = unsafe { map.unchecked_advise_range(advice, range.start, len) } {
                tracing::debug!("madvise(DONTNEED) was refused: {e}");
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}
