//! Guessing the next tokens, and how many of them.
//!
//! Guesses are rows of the same pass that makes the next token anyway. The sequence then chooses its tokens row by
//! row as it would without them, and goes on to the next row as long as the guess was what it chose. So guesses
//! change no byte; they only decide how many tokens a pass gives.

/// Where guesses come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculation {
    /// None are made.
    #[default]
    None,
    /// What followed the last tokens where they stood before: for answers that repeat their prompt.
    Lookup,
    /// The engine's draft model ([`super::EngineOptions::draft`]).
    Draft,
}

/// Most tokens guessed at once.
pub(super) const MAX_GUESSES: usize = 16;
/// Guesses to begin with.
const FIRST: usize = 4;
/// Longest and shortest run of last tokens that is looked for.
const RUNS: [usize; 3] = [6, 3, 2];

/// How many tokens are worth guessing: more after runs that were right, fewer after ones that were not.
#[derive(Clone, Debug)]
pub(super) struct Depth {
    now: usize,
    /// Steps to sit out after guesses that were wrong from the first.
    rest: usize,
    /// How many of the last guesses were wrong from the first, in a row.
    wrong: usize,
}

impl Depth {
    /// Nothing is known yet.
    pub fn new() -> Depth {
        Depth {
            now: FIRST,
            rest: 0,
            wrong: 0,
        }
    }

    /// Tokens to guess in this step.
    pub fn next(&mut self) -> usize {
        if self.rest > 0 {
            self.rest -= 1;
            return 0;
        }
        self.now
    }

    /// Of `guessed` tokens `right` were right.
    pub fn note(&mut self, guessed: usize, right: usize) {
        if guessed == 0 {
            return;
        }
        if right == guessed {
            self.now = (2 * self.now).min(MAX_GUESSES);
        } else {
            self.now = (right + 2).min(self.now).max(1);
        }
        match right {
            0 => {
                self.wrong = (self.wrong + 1).min(5);
                self.rest = (1 << self.wrong) / 4; // 0, 1, 2, 4, 8
            }
            _ => self.wrong = 0,
        }
    }
}

/// What followed the latest earlier place of the longest run of last tokens; at most `n` tokens.
pub(super) fn lookup(tokens: &[u32], n: usize) -> &[u32] {
    for run in RUNS {
        let Some(start) = tokens.len().checked_sub(run).filter(|s| *s > 0) else {
            continue;
        };
        let last = &tokens[start..];
        // Places whose continuation is at least one token.
        if let Some(at) = (0..start).rev().find(|&at| &tokens[at..at + run] == last) {
            let from = at + run;
            return &tokens[from..tokens.len().min(from + n)];
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_finds_the_latest_longest_run() {
        let text = [1, 2, 3, 4, 9, 2, 3, 5, 6, 7, 8, 2, 3];
        assert_eq!(lookup(&text, 3), [5, 6, 7], "the later place of 2 3");
        let text = [1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3];
        assert_eq!(lookup(&text, 2), [4, 9], "1 2 3 beats 2 3");
        assert_eq!(lookup(&[7, 7, 7, 7], 8), [7], "a run may reach into itself");
        assert!(lookup(&[1, 2, 3], 8).is_empty());
        assert!(lookup(&[], 8).is_empty());
    }

    #[test]
    fn depth_follows_what_was_right() {
        let mut d = Depth::new();
        assert_eq!(d.next(), FIRST);
        d.note(4, 4);
        d.note(8, 8);
        d.note(16, 16);
        assert_eq!(d.next(), MAX_GUESSES);
        d.note(16, 3);
        assert_eq!(d.next(), 5);
        for _ in 0..3 {
            d.note(2, 0);
        }
        assert_eq!(
            (d.next(), d.next(), d.next()),
            (0, 0, 2),
            "a pause, then again"
        );
    }
}
