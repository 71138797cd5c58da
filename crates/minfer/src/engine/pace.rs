//! How much of a prompt a step may take while others wait for their next token.

use std::time::Duration;

/// Mixed steps after which a pure decode step is measured again.
const REFRESH: usize = 64;
/// Rows to begin with, as long as nothing is known.
const FIRST: usize = 8;
/// Of the time that a step may take beyond a pure decode step, how much is planned for: estimates are rough.
const SHARE: f64 = 0.8;
/// Classes of decode rows: powers of two, the last one open.
const CLASSES: usize = 12;

/// What steps have taken. Only how many rows a step has depends on it, never a value.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Pure decode steps, by class of their rows: 1, 2, 3-4, 5-8, …: a step of sixteen says nothing about one of three.
    decode: [Option<Decode>; CLASSES],
    /// Seconds that a prompt row adds to a step.
    row: Option<f64>,
    /// Prompt rows of the last mixed step: the next one has at most twice as many, so that an estimate that is
    /// wrong by much costs little.
    last: usize,
}

#[derive(Clone, Copy, Debug)]
struct Decode {
    /// Seconds of a step: down at once, up slowly, since what disturbs a step makes it longer.
    seconds: f64,
    /// Mixed steps since it was measured.
    since: usize,
}

impl Pace {
    /// Prompt rows that a step with so many decode rows may take: as many as keep it under twice a pure
    /// decode step, at most `most`. None when that is to be measured (again).
    pub fn prompt_rows(&self, decode_rows: usize, most: usize) -> usize {
        if decode_rows == 0 {
            return most;
        }
        let known = self.decode[class(decode_rows)].filter(|d| d.since < REFRESH);
        match (known, self.row) {
            (None, _) => 0,
            (Some(_), None) => FIRST.min(most),
            (Some(decode), Some(row)) => {
                let rows = (SHARE * decode.seconds / row.max(1e-9)) as usize;
                rows.min(2 * self.last.max(FIRST / 2)).clamp(1, most.max(1))
            }
        }
    }

    /// A step with these rows has taken so long.
    pub fn note(&mut self, decode_rows: usize, prompt_rows: usize, elapsed: Duration) {
        if decode_rows == 0 {
            return;
        }
        let elapsed = elapsed.as_secs_f64();
        let known = &mut self.decode[class(decode_rows)];
        match (prompt_rows, known) {
            (0, known) => {
                let old = known.map_or(elapsed, |d| d.seconds);
                let seconds = elapsed.min(0.75 * old + 0.25 * elapsed);
                *known = Some(Decode { seconds, since: 0 });
            }
            (_, Some(decode)) => {
                decode.since += 1;
                self.last = prompt_rows;
                let row = (elapsed - decode.seconds) / prompt_rows as f64;
                // A step that was faster than one without prompt rows has no news about them.
                if row > 0.0 {
                    self.row = Some(self.row.map_or(row, |old| 0.7 * old + 0.3 * row));
                }
            }
            // Asked for without leave: the least row of a prompt that must not stand still.
            (_, None) => {}
        }
    }
}

fn class(decode_rows: usize) -> usize {
    let log = decode_rows.next_power_of_two().trailing_zeros() as usize;
    log.min(CLASSES - 1)
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
        assert_eq!(pace.prompt_rows(9, 512), 0, "other steps, other times");
        for _ in 1..REFRESH {
            pace.note(4, 8, ms(14));
        }
        assert_eq!(pace.prompt_rows(3, 512), 0, "decode is measured again");
        pace.note(3, 0, ms(10));
        assert!((15..=16).contains(&pace.prompt_rows(3, 512)));
        pace.note(3, 16, ms(4000));
        assert!(pace.prompt_rows(3, 512) >= 1, "a prompt never stands still");
    }

    #[test]
    fn one_odd_step_does_not_open_the_gate() {
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        pace.note(3, 0, ms(10));
        pace.note(3, 0, ms(100));
        pace.note(3, 8, ms(18));
        // Planned with 0.75 x 10 + 0.25 x 100 ms at most, and never more than twice the rows before.
        assert!(pace.prompt_rows(3, 512) <= 16);
        for _ in 0..20 {
            pace.note(3, 8, ms(5));
        }
        assert!(pace.prompt_rows(3, 512) <= 16, "no news is no cheap row");
    }
}
