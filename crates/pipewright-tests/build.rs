//! Links the puppet without a console if it will run under Wine, and detects whether std has pipes.
//!
//! Wine starts a process for every console. A puppet would start one first, which takes longer than all of its acts,
//! and crashes Wine's server if a job is killed meanwhile (`ci/under-wine.sh`). On Windows itself the puppet is a
//! console program, as most children are.

fn main() {
    println!("cargo::rerun-if-env-changed=PIPEWRIGHT_UNDER_WINE");
    let is_set = |name| std::env::var_os(name).is_some();
    if is_set("CARGO_CFG_WINDOWS") && is_set("PIPEWRIGHT_UNDER_WINE") {
        println!("cargo::rustc-link-arg-bin=puppet=-mwindows");
    }
    // `std::io::pipe`, Rust 1.87: as in the build script of pipewright-os.
    println!("cargo::rustc-check-cfg=cfg(pipewright_std_pipes)");
    if minor_version().is_some_and(|minor| minor >= 87) {
        println!("cargo::rustc-cfg=pipewright_std_pipes");
    }
}

/// Returns the compiler's minor version, or `None` if it does not report one.
fn minor_version() -> Option<u32> {
    let output =
        std::process::Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').nth(1)?.parse().ok()
}
