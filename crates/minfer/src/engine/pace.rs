//! How much of a prompt a step may take while others wait for their next token.

use std::time::Duration;

/// Steps after which a pure decode step is measured again.
const REFRESH: usize = 64;
/// Rows to begin with, as long as nothing is known.
const FIRST: usize = 8;
/// Of the time that a step may take beyond a pure decode step, how much is planned for: estimates are rough.
const SHARE: f64 = 0.8;

/// What steps have taken. Only how many rows a step has depends on it, never a value.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The last step that had decode rows alone.
    decode: Option<Duration>,
    /// Seconds that a prompt row adds to a step.
    row: Option<f64>,
    /// Steps since `decode` was measured.
    since: usize,
}

impl Pace {
    /// Prompt rows that a step with so many decode rows may take: as many as keep it under twice a pure
    /// decode step, at most `most`. None when that is to be measured (again).
    pub fn prompt_rows(&self, decode_rows: usize, most: usize) -> usize {
        if decode_rows == 0 {
            return most;
        }
        match (self.decode, self.row) {
            (None, _) => 0,
            _ if self.since >= REFRESH => 0,
            (Some(_), None) => FIRST.min(most),
            (Some(decode), Some(row)) => {
                let rows = SHARE * decode.as_secs_f64() / row.max(1e-9);
                (rows as usize).clamp(1, most.max(1))
            }
        }
    }

    /// A step with these rows has taken so long.
    pub fn note(&mut self, decode_rows: usize, prompt_rows: usize, elapsed: Duration) {
        match (decode_rows, prompt_rows, self.decode) {
            (0, ..) => {}
            (_, 0, _) => (self.decode, self.since) = (Some(elapsed), 0),
            (_, _, Some(decode)) => {
                self.since += 1;
                let row = elapsed.saturating_sub(decode).as_secs_f64() / prompt_rows as f64;
                self.row = Some(self.row.map_or(row, |old| 0.7 * old + 0.3 * row));
            }
            (_, _, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_rows_fill_what_a_decode_step_leaves() {
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        assert_eq!(pace.prompt_rows(0, 512), 512, "nobody waits");
        assert_eq!(pace.prompt_rows(3, 512), 0, "first a pure decode step");
        pace.note(3, 0, ms(10));
        assert_eq!(pace.prompt_rows(3, 512), FIRST);
        pace.note(3, 8, ms(18));
        assert_eq!(
            pace.prompt_rows(3, 512),
            8,
            "a millisecond a row: 8 in 80 % of 10 ms"
        );
        for _ in 1..REFRESH {
            pace.note(3, 8, ms(14));
        }
        assert_eq!(pace.prompt_rows(3, 512), 0, "decode is measured again");
        pace.note(3, 0, ms(40));
        assert!((60..=64).contains(&pace.prompt_rows(3, 512)));
        pace.note(1, 64, ms(4000));
        assert!(pace.prompt_rows(3, 512) >= 1, "a prompt never stands still");
    }
}
