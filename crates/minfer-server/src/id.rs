//! Names that nobody else has: request ids, and seeds for requests that bring none.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// A random number, of the standard library's keys for hash tables: not for secrets.
pub fn random() -> u64 {
    RandomState::new().hash_one(std::thread::current().id())
}

/// A random seed that every JSON reader keeps whole: below 2^53.
pub fn seed() -> u64 {
    random() >> 11
}

/// `prefix` and 24 random letters and digits.
pub fn named(prefix: &str) -> String {
    let hex = format!("{:016x}{:016x}", random(), random());
    let hex: String = hex.chars().take(24).collect();
    format!("{prefix}{hex}")
}

/// Seconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests {
    #[test]
    fn ids_differ_and_have_their_prefix() {
        let (a, b) = (super::named("chatcmpl-"), super::named("chatcmpl-"));
        assert!(a != b && a.starts_with("chatcmpl-") && a.len() == 33);
        assert!(super::seed() < 1 << 53);
    }
}
