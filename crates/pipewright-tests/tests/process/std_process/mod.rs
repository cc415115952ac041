//! `pipewright::process` is `std::process`: the same program compiles against both, and prints the same.

mod differs;
mod errors;
mod ext;
mod program;
mod shown;

/// Runs each function once with std and once with `pipewright::process`, and compares their results.
macro_rules! same_with_both {
    ($($test:ident)*) => {$(
        #[pipewright_test_macros::watched_test]
        fn $test() {
            let theirs = with_std::$test().expect("std can do it");
            let ours = with_pipewright::$test().expect("pipewright can do it");
            assert_eq!(theirs.len(), ours.len());
            for (theirs, ours) in theirs.iter().zip(&ours) {
                pretty_eq(theirs, ours);
            }
        }
    )*};
}

pub(crate) use same_with_both;

#[track_caller]
pub(crate) fn pretty_eq(theirs: &str, ours: &str) {
    assert!(theirs == ours, "std: {theirs}\nours: {ours}");
}
