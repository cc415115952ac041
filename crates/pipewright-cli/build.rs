//! Links the unwinder statically, which saves loading a shared library at every start.
//!
//! std links `libgcc_s.so.1`, and the tool needs it only to print a backtrace. Finding it, mapping it and binding its
//! symbols takes a tenth of the time of `pipewright run`. The compiler also has the code as an archive: if that comes
//! first on the command line of the linker, the shared library is not needed.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    println!("cargo::rustc-check-cfg=cfg(unwinder_inside)");
    if is_wanted() && has_archive() {
        // Without a kind the linker searches for the archive. With `static` rustc would search, and it does not
        // know the compiler's own directory.
        println!("cargo::rustc-link-lib=gcc_eh");
        println!("cargo::rustc-cfg=unwinder_inside");
    }
}

/// Returns true for glibc on the host itself: the compiler's archive is for the host.
fn is_wanted() -> bool {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let is_static =
        variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|name| name == "crt-static");
    variable("CARGO_CFG_TARGET_OS") == "linux"
        && variable("CARGO_CFG_TARGET_ENV") == "gnu"
        && variable("TARGET") == variable("HOST")
        && !is_static
}

/// Returns true if the compiler that links the tool has the archive. Other linkers use the shared library.
fn has_archive() -> bool {
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let output = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output();
    // A compiler without the archive prints the bare name.
    let path = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    path.is_ok_and(|path| Path::new(&path).is_absolute())
}
