//! Stop strings, found in text that comes in pieces.

/// What a piece of text led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Text that may be shown now.
    pub text: String,
    /// The stop string that was found right after it: nothing more may be shown.
    pub stop: Option<String>,
}

/// Finds stop strings across pieces. It holds back only text that may still become one: never more than the longest stop string
/// less one character.
#[derive(Clone, Debug, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
    found: Option<String>,
}

impl StopMatcher {
    /// A matcher for these strings; empty ones never match.
    pub fn new(stops: Vec<String>) -> StopMatcher {
        let stops = stops.into_iter().filter(|s| !s.is_empty()).collect();
        StopMatcher {
            stops,
            held: String::new(),
            found: None,
        }
    }

    /// The same, going on with text that another one held back.
    pub fn with_held(mut self, text: String) -> StopMatcher {
        self.held = text;
        self
    }

    /// The same after `text`, which is over: only a stop string that its end begins can still come. That end is held.
    pub(crate) fn after(mut self, text: String) -> StopMatcher {
        self.held = text;
        loop {
            let keep = self.possible_start();
            self.held.drain(..keep);
            if !self.stops.iter().any(|s| self.held.contains(s.as_str())) {
                return self;
            }
            self.held.remove(0);
        }
    }

    /// Text that may still become a stop string.
    pub fn held(&self) -> &str {
        &self.held
    }

    /// Takes the next piece. The stop string that is complete first wins, and of two that end together the longer: so the result
    /// does not depend on where the pieces are cut. After a stop all text is swallowed.
    pub fn push(&mut self, piece: &str) -> Stopped {
        if self.is_stopped() {
            return Stopped {
                text: String::new(),
                stop: None,
            };
        }
        self.held.push_str(piece);
        let found = self
            .stops
            .iter()
            .filter_map(|s| Some((self.held.find(s.as_str())?, s)));
        if let Some((at, stop)) = found.min_by_key(|(at, s)| (at + s.len(), *at)) {
            let stop = Some(stop.clone());
            self.found.clone_from(&stop);
            self.held.truncate(at);
            return Stopped {
                text: std::mem::take(&mut self.held),
                stop,
            };
        }
        let keep = self.possible_start();
        let rest = self.held.split_off(keep);
        Stopped {
            text: std::mem::replace(&mut self.held, rest),
            stop: None,
        }
    }

    /// What was held back, at the end of the text: it did not become a stop string.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// True once a stop string was found.
    pub fn is_stopped(&self) -> bool {
        self.found.is_some()
    }

    /// The stop string that was found.
    pub fn found(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// Where the earliest suffix of the held text begins that is a prefix of a stop string.
    fn possible_start(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = (self.held.len() + 1).saturating_sub(longest);
        (from..self.held.len())
            .filter(|i| self.held.is_char_boundary(*i))
            .find(|i| self.stops.iter().any(|s| s.starts_with(&self.held[*i..])))
            .unwrap_or(self.held.len())
    }
}
