//! Links the tool so that it starts fast: with the unwinder inside, and with packed relocations.
//!
//! **The unwinder.** Linking it statically saves loading a shared library at every start.
//! std links `libgcc_s.so.1`, and the tool needs it only to print a backtrace. Finding it, mapping it and binding its
//! symbols takes a tenth of the time of `pipewright run`. The compiler also has the code as an archive: if that comes
//! first on the command line of the linker, the shared library is not needed.
//!
//! **Packed relocations.** The loader reads 24 bytes for each address that it adjusts, and the tool has 5,600 of them.
//! Packed, they take 1.4 kB. glibc has read them since 2.36. A tool that was built with an older one keeps the long
//! form, and so still runs with it.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    println!("cargo::rustc-check-cfg=cfg(unwinder_inside)");
    // Only a compiler that links answers the question for the archive, and takes options for its linker.
    if is_wanted() && has_archive() {
        if is_x86_64() && glibc_version().is_some_and(|version| version >= (2, 36)) {
            // GNU ld before 2.38 ignores it, with a warning.
            println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        }
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

/// Returns true for the architecture where all linkers of the last years know the packed form.
fn is_x86_64() -> bool {
    env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64")
}

/// Returns the version of the C library of this machine, which the tool will need at least.
fn glibc_version() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    // For example "glibc 2.36".
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns true if the compiler that links the tool has the archive. Other linkers use the shared library.
fn has_archive() -> bool {
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let output = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output();
    // A compiler without the archive prints the bare name.
    let path = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    path.is_ok_and(|path| Path::new(&path).is_absolute())
}
