//! An opened GGUF file, or a model split over several.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::error::{Fault, GgufError};
use super::mapping::Bytes;
use super::metadata::Metadata;
use super::parse::{Header, parse};
use super::split::{self, SplitKeys};
use super::tensor::TensorInfo;

/// An opened model file: its header, and its mapped bytes. All parts of a split model are one.
#[derive(Debug)]
pub struct GgufFile {
    version: u32,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    bytes: Bytes,
}

impl GgufFile {
    /// Opens a file and, if it is the first part of a split model (`…-00001-of-0000N.gguf`), the
    /// other parts beside it. Reads and checks the headers; the tensors' bytes are only mapped.
    ///
    /// The files must not be cut short while they are open: touching bytes that are gone ends the
    /// process (SIGBUS). Replacing a model by renaming another file over its name is fine.
    ///
    /// # Errors
    /// A path that can't be opened or is a directory; bytes that are no valid GGUF 2 or 3; a
    /// missing part, or parts that don't belong together. Each names the file.
    pub fn open(path: &Path) -> Result<GgufFile, GgufError> {
        let bytes = Bytes::map(path)?;
        let header = parse(bytes.as_slice()).map_err(|f| f.at(path))?;
        let keys = SplitKeys::of(&header.metadata).map_err(|f| f.at(path))?;
        let mut file = GgufFile::first(path.to_owned(), bytes, header)?;
        if let Some(keys) = keys {
            for (no, name) in split::others(path, keys).map_err(|f| f.at(path))? {
                file.join(name, no, keys)?;
            }
            split::check_total(keys, file.tensors.len()).map_err(|f| f.at(path))?;
        }
        Ok(file)
    }

    /// Reads a file that is already in memory. Same checks as [`GgufFile::open`].
    ///
    /// # Errors
    /// Bytes that are no valid GGUF 2 or 3, or that are one part of a split model.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<GgufFile, GgufError> {
        let path = PathBuf::from("(bytes in memory)");
        let header = parse(&bytes).map_err(|f| f.at(&path))?;
        if let Some(keys) = SplitKeys::of(&header.metadata).map_err(|f| f.at(&path))? {
            return Err(split::alone(keys).at(&path));
        }
        GgufFile::first(path, Bytes::Owned(bytes), header)
    }

    fn first(path: PathBuf, bytes: Bytes, header: Header) -> Result<GgufFile, GgufError> {
        let Header {
            version,
            metadata,
            tensors,
        } = header;
        let mut file = GgufFile {
            version,
            metadata,
            tensors: Vec::new(),
            index: HashMap::new(),
            parts: Vec::new(),
        };
        file.add(path, bytes, tensors)?;
        Ok(file)
    }

    /// Opens part `no` (0-based) and adds its tensors.
    fn join(&mut self, path: PathBuf, no: u32, keys: SplitKeys) -> Result<(), GgufError> {
        let bytes = Bytes::map(&path)?;
        let header = parse(bytes.as_slice()).map_err(|f| f.at(&path))?;
        let found = SplitKeys::of(&header.metadata).map_err(|f| f.at(&path))?;
        split::check_part(found, no, keys).map_err(|f| f.at(&path))?;
        self.add(path, bytes, header.tensors)
    }

    fn add(
        &mut self,
        path: PathBuf,
        bytes: Bytes,
        tensors: Vec<TensorInfo>,
    ) -> Result<(), GgufError> {
        let part = self.parts.len();
        for mut t in tensors {
            t.part = part;
            if self
                .index
                .insert(t.name.clone(), self.tensors.len())
                .is_some()
            {
                return Err(Fault::tensor(&t.name, "it occurs twice").at(path));
            }
            self.tensors.push(t);
        }
        self.parts.push(Part { path, bytes });
        Ok(())
    }

    /// The version of the (first) file: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The metadata of the (first) file.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in file order, part after part.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).and_then(|i| self.tensors.get(*i))
    }

    /// A tensor's bytes, `info.n_bytes` of them, from the mapping. They are at any address: the
    /// file's alignment is a promise about offsets only. Empty for an `info` that is not of this file.
    pub fn data(&self, info: &TensorInfo) -> &[u8] {
        let bytes = self.parts.get(info.part).map(|p| p.bytes.as_slice());
        bytes
            .zip(info.range())
            .and_then(|(b, range)| b.get(range))
            .unwrap_or_default()
    }

    /// Says that a part of a tensor's bytes is going to be read: the system may begin to bring it into memory.
    pub fn advise_soon(&self, info: &TensorInfo, part: Range<usize>) {
        self.advise(info, part, Bytes::fetch);
    }

    /// Says that a part of a tensor's bytes is read next: its pages may be mapped together.
    pub fn advise_now(&self, info: &TensorInfo, part: Range<usize>) {
        self.advise(info, part, Bytes::populate);
    }

    /// Says that a part of a tensor's bytes is not needed for now, so that its pages stop counting as this
    /// process's memory. They stay readable: the system brings them back from the file.
    pub fn advise_done(&self, info: &TensorInfo, part: Range<usize>) {
        self.advise(info, part, Bytes::release);
    }

    /// Nothing for parts that are not in the tensor.
    fn advise(&self, info: &TensorInfo, part: Range<usize>, with: fn(&Bytes, Range<usize>)) {
        let (Some(file), Some(tensor)) = (self.parts.get(info.part), info.range()) else {
            return;
        };
        let place = |at: usize| tensor.start.checked_add(at).filter(|p| *p <= tensor.end);
        if let (Some(start), Some(end)) = (place(part.start), place(part.end)) {
            with(&file.bytes, start..end);
        }
    }

    /// The path of the (first) file, as it was given.
    pub fn path(&self) -> &Path {
        self.parts.first().map_or(Path::new(""), |p| &p.path)
    }

    /// The paths of all parts, one for a model in one file.
    pub fn parts(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|p| p.path.as_path())
    }

    /// Bytes of all parts together.
    pub fn size(&self) -> u64 {
        self.parts
            .iter()
            .fold(0, |n, p| n.saturating_add(p.bytes.as_slice().len() as u64))
    }
}
