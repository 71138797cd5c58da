//! Pages and page lists: the host side of the KV cache. Data, not structure: this room knows no
//! device and no graph; a page is a number, a position's place in it is `slot % PAGE`.

use crate::graph::PAGE;

/// There are not enough pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the KV cache is full: {needed} more page(s) of {PAGE} positions needed, {free} of {total} free"
)]
pub struct OutOfPages {
    /// Pages asked for.
    pub needed: usize,
    /// Pages free.
    pub free: usize,
    /// Pages there are.
    pub total: usize,
}

/// The pages of one kind of layer.
#[derive(Debug)]
pub struct PagePool {
    /// Free pages, the next one to hand out last.
    free: Vec<u32>,
    total: usize,
}

impl PagePool {
    /// All free.
    pub fn new(total: usize) -> PagePool {
        PagePool {
            free: (0..total as u32).rev().collect(),
            total,
        }
    }

    /// Free pages.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// All pages.
    pub fn total(&self) -> usize {
        self.total
    }
}

/// The pages of one sequence, in order of position.
#[derive(Debug, Default)]
pub struct PageList {
    pages: Vec<i32>,
}

impl PageList {
    /// Takes pages from the pool until `positions` have a place. Takes none if they don't suffice.
    pub fn reserve(&mut self, pool: &mut PagePool, positions: usize) -> Result<(), OutOfPages> {
        let needed = positions.div_ceil(PAGE).saturating_sub(self.pages.len());
        if needed > pool.free.len() {
            return Err(OutOfPages {
                needed,
                free: pool.free.len(),
                total: pool.total,
            });
        }
        let from = pool.free.len() - needed;
        self.pages
            .extend(pool.free.drain(from..).rev().map(|p| p as i32));
        Ok(())
    }

    /// Gives every page back.
    pub fn release(&mut self, pool: &mut PagePool) {
        pool.free
            .extend(self.pages.drain(..).rev().map(|p| p as u32));
    }

    /// A line of the page table.
    pub fn pages(&self) -> &[i32] {
        &self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_handed_out_once_and_come_back() {
        let mut pool = PagePool::new(4);
        let (mut a, mut b) = (PageList::default(), PageList::default());
        a.reserve(&mut pool, 33).unwrap();
        b.reserve(&mut pool, 32).unwrap();
        a.reserve(&mut pool, 64).unwrap(); // already there
        assert_eq!(
            (a.pages(), b.pages(), pool.free()),
            (&[0, 1][..], &[2][..], 1)
        );
        let full = b.reserve(&mut pool, 97).unwrap_err();
        assert_eq!((full.needed, full.free, full.total), (3, 1, 4));
        assert_eq!(b.pages(), &[2], "a refusal takes nothing");
        a.release(&mut pool);
        b.reserve(&mut pool, 128).unwrap();
        assert_eq!((b.pages().len(), pool.free()), (4, 0));
        b.release(&mut pool);
        assert_eq!(pool.free(), pool.total());
    }
}
