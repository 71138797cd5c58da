//! Bits of a block of the file moved to their packed places, a word of four bytes (of four codes) at a time.

/// Bytes of a word.
pub(super) const FOUR: usize = 4;
/// Low halves of four bytes.
pub(super) const LOW: u32 = 0x0f0f_0f0f;
/// High halves of four bytes.
pub(super) const HIGH: u32 = 0xf0f0_f0f0;

/// Little-endian words from byte `at` of a block on.
#[inline(always)]
pub(super) fn words<const N: usize>(block: &[u8], at: usize) -> [u32; N] {
    std::array::from_fn(|j| {
        let b = &block[at + FOUR * j..][..FOUR];
        u32::from_le_bytes([b[0], b[1], b[2], b[3]])
    })
}

/// Exchanges the bits of `a` under `mask << shift` with those of `b` under `mask`.
#[inline(always)]
fn exchange(a: u32, b: u32, shift: u32, mask: u32) -> (u32, u32) {
    let t = (a >> shift ^ b) & mask;
    (a ^ t << shift, b ^ t)
}

/// Within one word, exchanges the bits under `mask << shift` with those under `mask`.
#[inline(always)]
fn exchange_within(w: u32, shift: u32, mask: u32) -> u32 {
    let t = (w >> shift ^ w) & mask;
    w ^ t ^ t << shift
}

/// Bit `4 j + x` goes to bit `8 x + j`: the fifth bits of 32 codes.
///
/// The number of a bit has five digits; its two lowest become its two highest. Each step swaps two digits.
#[inline(always)]
pub(super) fn fifth_bits(w: u32) -> u32 {
    // Digits 4 3 2 1 0 hold j2 j1 j0 x1 x0.
    let w = exchange_within(w, 14, 0x0000_cccc); // 4 with 1: x1 j1 j0 j2 x0
    let w = exchange_within(w, 7, 0x00aa_00aa); // 3 with 0: x1 x0 j0 j2 j1
    let w = exchange_within(w, 2, 0x0c0c_0c0c); // 2 and 1: x1 x0 j2 j0 j1
    exchange_within(w, 1, 0x2222_2222) // 1 and 0: x1 x0 j2 j1 j0
}

/// Bit `b` of byte `x` of word `j` goes to bit `j` of byte `x` of word `b`.
#[inline(always)]
pub(super) fn transpose_bits(mut w: [u32; 8]) -> [u32; 8] {
    for (distance, mask) in [(4, 0x0f0f_0f0f), (2, 0x3333_3333), (1, 0x5555_5555)] {
        for j in (0..8).filter(|j| j & distance == 0) {
            (w[j], w[j + distance]) = exchange(w[j], w[j + distance], distance as u32, mask);
        }
    }
    w
}

/// Two-bit field `s` of byte `x` of word `j` goes to field `j` of byte `x` of word `s`.
#[inline(always)]
pub(super) fn transpose_pairs(mut w: [u32; 4]) -> [u32; 4] {
    for (distance, mask) in [(2, 0x0f0f_0f0f), (1, 0x3333_3333)] {
        for j in (0..4).filter(|j| j & distance == 0) {
            (w[j], w[j + distance]) = exchange(w[j], w[j + distance], 2 * distance as u32, mask);
        }
    }
    w
}

/// The scales and minimums of a Q4_K or Q5_K block as three words of fields: eight scales, then eight minimums,
/// five six-bit fields a word from the lowest bits on; the sixteenth lies in the top two bits of each word.
#[inline(always)]
pub(super) fn fields_of([a, b, c]: [u32; 3]) -> [u32; 3] {
    /// Six-bit fields of four bytes, side by side.
    #[inline(always)]
    fn close(w: u32) -> u64 {
        let field = |i: u32| w >> (2 * i) & 63 << (6 * i);
        u64::from(field(0) | field(1) | field(2) | field(3))
    }
    const FIELDS: u32 = 0x3f3f_3f3f;
    const TOP: u32 = 0x3030_3030;
    const FIVE: u64 = (1 << 30) - 1;
    let scales = close(a & FIELDS) | close(c & LOW | a >> 2 & TOP) << 24;
    let mins = close(b & FIELDS) | close(c >> 4 & LOW | b >> 2 & TOP) << 24;
    let last = (mins >> 42) as u32;
    [
        (scales & FIVE) as u32 | last << 30,
        ((scales >> 30 | mins << 18) & FIVE) as u32 | last >> 2 << 30,
        (mins >> 12 & FIVE) as u32 | last >> 4 << 30,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_goes_to_its_place() {
        for j in 0..8 {
            for x in 0..4 {
                assert_eq!(fifth_bits(1 << (4 * j + x)), 1 << (8 * x + j));
                for b in 0..8 {
                    let mut w = [0; 8];
                    w[j] = 1u32 << (8 * x + b);
                    let mut want = [0; 8];
                    want[b] = 1u32 << (8 * x + j);
                    assert_eq!(transpose_bits(w), want);
                }
                for bit in 0..8 {
                    let (mut w, mut want) = ([0; 4], [0; 4]);
                    w[j % 4] = 1u32 << (8 * x + bit);
                    want[bit / 2] = 1u32 << (8 * x + 2 * (j % 4) + bit % 2);
                    assert_eq!(transpose_pairs(w), want);
                }
            }
        }
    }
}
