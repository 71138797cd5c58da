//! The floating-point environment of a thread: bits are the same everywhere only with rounding to
//! nearest even and subnormals kept. A host program may have set something else on the thread that
//! calls us (audio libraries and `-ffast-math` start-up code do), and new threads inherit it.

/// While it lives, this thread rounds to nearest even and keeps subnormals; then what was set before
/// is set again.
pub struct DefaultFloatEnv {
    before: Option<imp::Word>,
}

impl DefaultFloatEnv {
    /// Reads the environment, and changes it only if it is not the default.
    pub fn enter() -> DefaultFloatEnv {
        let word = imp::read();
        let default = word & !imp::MASK;
        if word == default {
            return DefaultFloatEnv { before: None };
        }
        imp::write(default);
        DefaultFloatEnv { before: Some(word) }
    }
}

impl Drop for DefaultFloatEnv {
    fn drop(&mut self) {
        if let Some(word) = self.before {
            imp::write(word);
        }
    }
}

/// Whether this thread rounds to nearest even and keeps subnormals.
pub(super) fn is_default() -> bool {
    imp::read() & imp::MASK == 0
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod imp {
    use std::arch::asm;

    /// MXCSR.
    pub(super) type Word = u32;
    /// Flush-to-zero, rounding control, denormals-are-zero.
    pub(super) const MASK: Word = 1 << 15 | 3 << 13 | 1 << 6;

    pub(super) fn read() -> Word {
        let mut word = 0;
        // SAFETY: every x86-64 CPU has SSE; the instruction writes four bytes to a u32 of ours.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
        word
    }

    pub(super) fn write(word: Word) {
        // SAFETY: `word` was read from MXCSR with bits of MASK cleared or as it was, so no reserved
        // bit is set. It turns Rust's default environment on, or gives the host's back on return.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags)) };
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod imp {
    use std::arch::asm;

    /// FPCR.
    pub(super) type Word = u64;
    /// Default NaN, flush-to-zero, rounding mode, flush-to-zero of f16.
    pub(super) const MASK: Word = 1 << 25 | 1 << 24 | 3 << 22 | 1 << 19;

    pub(super) fn read() -> Word {
        let word;
        // SAFETY: FPCR can be read at every exception level.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack, preserves_flags)) };
        word
    }

    pub(super) fn write(word: Word) {
        // SAFETY: `word` was read from FPCR with bits of MASK cleared or as it was. It turns Rust's
        // default environment on, or gives the host's back on return.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nostack, preserves_flags)) };
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod imp {
    pub(super) type Word = u32;
    pub(super) const MASK: Word = 0;

    pub(super) fn read() -> Word {
        0
    }

    pub(super) fn write(_word: Word) {}
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;
    use crate::backend::cpu::threads::ThreadPool;

    #[test]
    fn a_host_with_flush_to_zero_gets_the_same_bits_and_its_setting_back() {
        let before = imp::read();
        imp::write(before | imp::MASK);
        // A CPU without f16 arithmetic has no flush-to-zero of f16: its bit stays 0.
        let host = imp::read();
        let pool = ThreadPool::new(2).unwrap();
        let result = pool.run(|w| assert!(is_default(), "thread {}", w.index()));
        let after = imp::read();
        imp::write(before);
        result.unwrap();
        assert_ne!(host & imp::MASK, 0);
        assert_eq!(after, host);
        assert!(is_default());
    }
}
