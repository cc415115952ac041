//! Tests of the whole: later.
