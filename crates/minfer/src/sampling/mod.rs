//! The sampler chain: penalties, filters, counter-based draws, stop strings.
