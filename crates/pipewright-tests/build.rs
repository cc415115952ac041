//! Makes the puppet a program without a console where it is to run under Wine, and finds out if std has pipes.
//!
//! Wine gives every console a process of its own. A puppet would start one as its first act, which
//! takes longer than all that the puppet does, and where a job is killed meanwhile it crashes Wine's
//! server (`ci/under-wine.sh`). On Windows itself the puppet is what most children are: a program
//! for the console.

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

/// The second number of the compiler's version; `None` where it does not say.
fn minor_version() -> Option<u32> {
    let output =
        std::process::Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').nth(1)?.parse().ok()
}
