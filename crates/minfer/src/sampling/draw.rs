//! Counter-based draws: a number that depends on where it is used, and on nothing that happened before.

/// The finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), with its increment.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A number in [0, 1), uniform, 53 bits: a pure function of the seed, the choice (`n` answers to one prompt), the position of the token
/// and the number of the draw at that position. Each enters through its own round, so neighbours share nothing.
pub fn draw(seed: u64, choice: u64, position: u64, index: u64) -> f64 {
    let bits = [choice, position, index]
        .iter()
        .fold(mix(seed), |state, word| mix(state ^ word));
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SplitMix64's published sequence for the seed 1234567.
    #[test]
    fn mix_is_splitmix64() {
        let step = 0x9e37_79b9_7f4a_7c15u64;
        let ours: Vec<u64> = (0..4)
            .map(|i| mix(1_234_567u64.wrapping_add(step.wrapping_mul(i))))
            .collect();
        assert_eq!(
            ours,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431
            ]
        );
    }

    #[test]
    fn draws_are_uniform_along_every_counter() {
        let n = 40_000u32;
        for axis in 0..4 {
            let mut bins = [0u32; 16];
            let mut serial = 0.0;
            let mut last = 0.5;
            for i in 0..u64::from(n) {
                let mut c = [7u64, 0, 0, 0];
                c[axis] = i;
                let u = draw(c[0], c[1], c[2], c[3]);
                assert!((0.0..1.0).contains(&u));
                bins[(u * 16.0) as usize] += 1;
                serial += (u - 0.5) * (last - 0.5);
                last = u;
            }
            let expected = f64::from(n) / 16.0;
            let chi2: f64 = bins
                .iter()
                .map(|b| (f64::from(*b) - expected).powi(2) / expected)
                .sum();
            assert!(chi2 < 40.0, "axis {axis}: {chi2}"); // 15 degrees of freedom: p = 0.0005
            assert!(
                (serial / f64::from(n) * 12.0).abs() < 0.02,
                "axis {axis}: {serial}"
            );
        }
    }

    #[test]
    fn swapped_counters_differ() {
        let all = [
            draw(1, 2, 3, 0),
            draw(2, 1, 3, 0),
            draw(1, 3, 2, 0),
            draw(1, 0, 2, 3),
            draw(3, 2, 1, 0),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b));
        }
    }
}
