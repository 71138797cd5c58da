//! Turning keys where they lie: a page's keys were stored at some positions and shall be those of others.
//!
//! Contract. Every key of the page is decoded to f32 (exactly), turned as [`rope_row`] turns a row, and stored as
//! [`kv_store_head`] stores one: one rounding to the region's format, and the same bits on every machine.
//! It is rare, so a key goes through memory of the thread's own.

use super::kv::{kv_store_head, q8};
use super::rope::rope_row;
use crate::graph::{KvPart, KvType, PAGE, RopeKind};
use crate::lanes::Machine;

/// Turns all keys of a head's part of a K page ([`head_offset`](super::kv::head_offset)), by a row of angles
/// ([`RopeFreqs::fill_row`](super::rope::RopeFreqs::fill_row)). `room` is f32 `[head_dim]`.
///
/// # Panics
/// As [`rope_row`].
///
/// # Safety
/// `part` is such a part, of heads as wide as `room`, as
/// [`StoreArgs::head_dim`](super::kv::StoreArgs) asks; nobody else reads or writes it meanwhile.
pub unsafe fn turn_keys(
    machine: Machine,
    (ty, rope): (KvType, RopeKind),
    table: &[f32],
    part: *mut u8,
    room: &mut [f32],
) {
    for t in 0..PAGE {
        // SAFETY: the caller's: a whole part, this thread's alone.
        unsafe { load_key(ty, part, t, room) };
        rope_row(machine, rope, room, room.len(), table);
        let kept = (KvPart::K, ty);
        // SAFETY: as above; `room` has the head's values.
        unsafe { kv_store_head(machine, kept, room.len(), room.as_ptr(), t, part) };
    }
}

/// The key at position `t` of a head's part of a K page, as f32 `[head_dim]`.
///
/// # Safety
/// `part` is such a part, of heads as wide as `out`; nobody writes it meanwhile.
pub unsafe fn load_key(ty: KvType, part: *const u8, t: usize, out: &mut [f32]) {
    for (c, x) in out.iter_mut().enumerate() {
        // SAFETY: channel `c` of position `t` lies within the part (caller), where `kv` says.
        *x = unsafe {
            match ty {
                KvType::F32 => part.cast::<f32>().add(c * PAGE + t).read(),
                KvType::F16 => half(part.cast::<u16>().add(c * PAGE + t)),
                KvType::Q8_0 => {
                    let block = part.add(c / q8::BLOCK * q8::K_BYTES);
                    let word = block.add(q8::K_CODES + 4 * (c % q8::BLOCK / 4 * PAGE + t));
                    let code = i32::from(word.add(c % 4).read()) - 128;
                    // Eight bits of a code by eleven of a scale: exact.
                    half(block.cast::<u16>().add(t)) * code as f32
                }
            }
        };
    }
}

/// One value of half precision.
///
/// # Safety
/// It can be read.
unsafe fn half(at: *const u16) -> f32 {
    // SAFETY: the caller's.
    half::f16::from_bits(unsafe { at.read() }).to_f32()
}
