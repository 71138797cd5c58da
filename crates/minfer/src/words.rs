//! Numbers in messages.

/// A count and its noun, whose plural ends in s: `1 token`, `2 tokens`.
pub fn count(n: usize, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        _ => format!("{n} {noun}s"),
    }
}

/// Bytes in the unit that shows them, to three digits: `64 bytes`, `1 KB`, `47.2 MB`. Units are powers of 1000, as in `--kv-memory`.
pub fn size(bytes: u64) -> String {
    in_unit(bytes, false)
}

/// The same rounded up: who gives as much as it says gives enough.
pub fn size_or_more(bytes: u64) -> String {
    in_unit(bytes, true)
}

fn in_unit(bytes: u64, up: bool) -> String {
    const UNITS: [&str; 6] = ["KB", "MB", "GB", "TB", "PB", "EB"];
    let rounded = |n: u128, unit: u128| match up {
        true => n.div_ceil(unit),
        false => (n + unit / 2) / unit,
    };
    let bytes = u128::from(bytes);
    let mut unit = 1_u128;
    let mut name = None;
    for next in UNITS {
        // What is 1000 of a unit when it is rounded is 1 of the next.
        if rounded(bytes, unit) < 1000 {
            break;
        }
        (unit, name) = (unit * 1000, Some(next));
    }
    let Some(name) = name else {
        return count(usize::try_from(bytes).unwrap_or(usize::MAX), "byte");
    };
    let decimals = match bytes / unit {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    let digits = 10_u128.pow(decimals);
    let rounded = rounded(bytes * digits, unit);
    let fraction = format!("{:0>1$}", rounded % digits, decimals as usize);
    match fraction.trim_end_matches('0') {
        "" => format!("{} {name}", rounded / digits),
        fraction => format!("{}.{fraction} {name}", rounded / digits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_has_its_noun() {
        let said = [0, 1, 2].map(|n| count(n, "token"));
        assert_eq!(said, ["0 tokens", "1 token", "2 tokens"]);
    }

    #[test]
    fn sizes_are_told_in_the_unit_that_shows_them() {
        for (bytes, said) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1000, "1 KB"),
            (1536, "1.54 KB"),
            (2_097_152, "2.1 MB"),
            (47_185_920, "47.2 MB"),
            (500_000_000, "500 MB"),
            (1_050_000_000, "1.05 GB"),
            (999_499, "999 KB"),
            (999_500, "1 MB"),
            (999_999, "1 MB"),
            (999_499_999, "999 MB"),
            (999_999_999_999, "1 TB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(size(bytes), said, "{bytes}");
        }
    }

    #[test]
    fn what_is_needed_is_rounded_up() {
        assert_eq!(size_or_more(1000), "1 KB");
        assert_eq!(size_or_more(1001), "1.01 KB");
        assert_eq!(size_or_more(47_113_000), "47.2 MB");
        assert_eq!(size_or_more(99_999_999), "100 MB");
        assert_eq!(size_or_more(999), "999 bytes");
        assert_eq!(size_or_more(999_000), "999 KB");
        assert_eq!(size_or_more(999_001), "1 MB");
    }
}
