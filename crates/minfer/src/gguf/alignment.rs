//! The alignment of tensor data.

use super::ALIGNMENT_KEY;
use super::error::Fault;
use super::metadata::Metadata;
use super::value::Value;

/// A power of two, 1 to [`Alignment::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment(u32);

impl Alignment {
    /// 1 MiB: above any page or sector that a file may want to be aligned to.
    const MAX: u32 = 1 << 20;
    const DEFAULT: u32 = 32;

    /// What `general.alignment` says, or 32.
    pub(super) fn of(metadata: &Metadata) -> Result<Alignment, Fault> {
        match metadata.get(ALIGNMENT_KEY) {
            None => Ok(Alignment(Self::DEFAULT)),
            Some(Value::U32(n)) if n.is_power_of_two() && *n <= Self::MAX => Ok(Alignment(*n)),
            Some(other) => Err(Fault::Alignment(other.summary(), u64::from(Self::MAX))),
        }
    }

    pub(super) fn get(self) -> u64 {
        u64::from(self.0)
    }

    pub(super) fn divides(self, n: u64) -> bool {
        n & self.get().wrapping_sub(1) == 0
    }

    /// `n` rounded up to a multiple (`u64::MAX` if that overflows, which no file reaches).
    pub(super) fn pad(self, n: u64) -> u64 {
        n.checked_next_multiple_of(self.get()).unwrap_or(u64::MAX)
    }
}
