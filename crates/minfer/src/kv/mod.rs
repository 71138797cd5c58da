//! Pages, page tables: the host side of the KV cache.
