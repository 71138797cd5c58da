//! Where models come from: schemes, aliases, the cache.
