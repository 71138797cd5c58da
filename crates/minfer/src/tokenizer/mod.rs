//! Tokenizers built from GGUF metadata alone.
