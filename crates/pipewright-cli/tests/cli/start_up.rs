//! The tool starts with few libraries, since it starts other programs.

use super::{out, pace, run_sh};

#[test]
fn no_library_is_loaded_for_backtraces_or_for_logarithms() {
    let output = run_sh(&["--contain", "none"], "cat /proc/$PPID/maps");
    let maps = out(&output);
    assert!(maps.contains("/pipewright\n") && maps.contains("/libc"), "{maps}");
    assert!(!maps.contains("/libm.so") && !maps.contains("/libm-"), "{maps}");
    if cfg!(unwinder_inside) {
        assert!(!maps.contains("/libgcc_s"), "{maps}");
    } else {
        pace::skipped(
            pace::Need::UnwinderArchive,
            "the compiler that links has no archive of the unwinder",
        );
    }
}
