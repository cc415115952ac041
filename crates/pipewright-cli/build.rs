//! Puts the unwinder into the tool, which would otherwise load a shared library at every start.
//!
//! std names `libgcc_s.so.1`, of which the tool needs what prints a backtrace and nothing else. To look
//! for it, map it and bind its symbols is a tenth of what `pipewright run` costs. The same code lies
//! beside the compiler as an archive: where that comes first, the shared one is not needed.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    println!("cargo::rustc-check-cfg=cfg(unwinder_inside)");
    if is_asked_for() && has_archive() {
        // A name without a kind is left to the linker; `static` would have rustc look for it, who does
        // not know the compiler's own folder.
        println!("cargo::rustc-link-lib=gcc_eh");
        println!("cargo::rustc-cfg=unwinder_inside");
    }
}

/// With glibc, built for the machine that builds it: what lies beside the compiler is for that one.
fn is_asked_for() -> bool {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let is_static =
        variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|name| name == "crt-static");
    variable("CARGO_CFG_TARGET_OS") == "linux"
        && variable("CARGO_CFG_TARGET_ENV") == "gnu"
        && variable("TARGET") == variable("HOST")
        && !is_static
}

/// Whether the compiler that links the tool has it. Whatever else answers does without.
fn has_archive() -> bool {
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let output = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output();
    // A compiler without it gives the bare name back.
    let path = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    path.is_ok_and(|path| Path::new(&path).is_absolute())
}
