//! Whole pages between forward passes: copied, read out, written back.
//!
//! A page number means the same page in all layers of its kind. As bytes, a page is that of each such layer in
//! order of the layers, of each its K and then its V; what a region's own bytes are is its backend's promise
//! ([`Backend::kv_read`]).

use super::cache::GraphCache;
use super::{Backend, BufferId, GraphError, KvRegion, LayerKind};

/// The regions of the layers of a kind, in order.
fn of(cache: &GraphCache, kind: LayerKind) -> impl Iterator<Item = (&KvRegion, BufferId)> {
    cache.regions().filter(move |(r, _)| r.kind == kind)
}

fn home<'b>(backends: &'b mut [Box<dyn Backend>], region: &KvRegion) -> &'b mut dyn Backend {
    backends[region.backend.0 as usize].as_mut()
}

fn bytes_of(region: &KvRegion, backends: &[Box<dyn Backend>]) -> usize {
    backends[region.backend.0 as usize].kv_page_bytes(&region.shape)
}

/// That the page exists in every region.
fn check(cache: &GraphCache, kind: LayerKind, page: u32) -> Result<usize, GraphError> {
    if cache.regions().next().is_none() {
        return Err(GraphError::NoKv);
    }
    let pages = of(cache, kind).map(|(r, _)| r.shape.pages).min();
    let pages = pages.unwrap_or(0);
    match (page as usize) < pages {
        true => Ok(page as usize),
        false => Err(GraphError::KvPage { kind, page, pages }),
    }
}

/// Bytes of a page in all layers of a kind.
pub(super) fn page_bytes(
    cache: &GraphCache,
    backends: &[Box<dyn Backend>],
    kind: LayerKind,
) -> usize {
    of(cache, kind).map(|(r, _)| bytes_of(r, backends)).sum()
}

/// Copies a page onto another one.
pub(super) fn copy(
    cache: &GraphCache,
    backends: &mut [Box<dyn Backend>],
    kind: LayerKind,
    [from, to]: [u32; 2],
) -> Result<(), GraphError> {
    let (from, to) = (check(cache, kind, from)?, check(cache, kind, to)?);
    if from == to {
        return Ok(());
    }
    for (region, id) in of(cache, kind) {
        home(backends, region).kv_copy(id, &region.shape, from, to)?;
    }
    Ok(())
}

/// Appends a page's bytes to `out`, which stays as it was after an error.
pub(super) fn read(
    cache: &GraphCache,
    backends: &mut [Box<dyn Backend>],
    (kind, page): (LayerKind, u32),
    out: &mut Vec<u8>,
) -> Result<(), GraphError> {
    let page = check(cache, kind, page)?;
    let before = out.len();
    let mut at = before;
    out.resize(before + page_bytes(cache, backends, kind), 0);
    for (region, id) in of(cache, kind) {
        let end = at + bytes_of(region, backends);
        let read = home(backends, region).kv_read(id, &region.shape, page, &mut out[at..end]);
        if let Err(e) = read {
            out.truncate(before);
            return Err(e.into());
        }
        at = end;
    }
    Ok(())
}

/// Makes a page what was read from one.
pub(super) fn write(
    cache: &GraphCache,
    backends: &mut [Box<dyn Backend>],
    (kind, page): (LayerKind, u32),
    bytes: &[u8],
) -> Result<(), GraphError> {
    let page = check(cache, kind, page)?;
    let (want, got) = (page_bytes(cache, backends, kind), bytes.len());
    if got != want {
        return Err(GraphError::KvBytes { kind, want, got });
    }
    let mut rest = bytes;
    for (region, id) in of(cache, kind) {
        let (own, after) = rest.split_at(bytes_of(region, backends));
        home(backends, region).kv_write(id, &region.shape, page, own)?;
        rest = after;
    }
    Ok(())
}
