//! Chat templates, messages and their rendering.
