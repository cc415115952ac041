//! What differs from std, as the documentation of `pipewright::process` lists it.
