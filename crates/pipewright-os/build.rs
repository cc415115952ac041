//! Compiles the supervisor (`supervisor/main.rs`), which `src/process/contain/linux/image.rs` embeds, and
//! detects which types the standard library has.
//!
//! The supervisor is a separate program from the one that this library becomes part of, and cargo has no
//! stable way to build such a program. It needs no library, so the compiler and the linker that build
//! everything else suffice. Where they fail, the library works without it: trees are then held only by a
//! cgroup or a process group, and report that.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The processors whose system call numbers the supervisor knows.
const ARCHITECTURES: [&str; 3] = ["x86_64", "aarch64", "riscv64"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=supervisor");
    println!("cargo::rerun-if-changed=nolibc");
    println!("cargo::rustc-check-cfg=cfg(pipewright_supervisor, pipewright_std_pipes)");
    if minor_version().is_some_and(|minor| minor >= STD_PIPES_SINCE) {
        println!("cargo::rustc-cfg=pipewright_std_pipes");
    }
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let is_linux = variable("CARGO_CFG_TARGET_OS") == "linux";
    if !is_linux || !ARCHITECTURES.contains(&variable("CARGO_CFG_TARGET_ARCH").as_str()) {
        return;
    }
    let image = PathBuf::from(variable("OUT_DIR")).join("supervisor");
    match compile(&image) {
        Ok(()) => println!("cargo::rustc-cfg=pipewright_supervisor"),
        Err(reason) => {
            let reason = reason.lines().next().unwrap_or_default();
            println!("cargo::warning=the supervisor of process trees is left out: {reason}");
        }
    }
}

/// The minor version of Rust (1.87) that added `std::io::pipe` and its ends. This library builds with older
/// ones.
const STD_PIPES_SINCE: u32 = 87;

/// Returns the minor version of the compiler; `None` if its output does not contain one.
fn minor_version() -> Option<u32> {
    let output = Command::new(env::var_os("RUSTC")?).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split('.').nth(1)?.parse().ok()
}

fn compile(image: &Path) -> Result<(), String> {
    let variable = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
    let mut rustc = Command::new(variable("RUSTC")?);
    rustc.arg("supervisor/main.rs").arg("-o").arg(image);
    rustc.args(["--crate-name", "supervisor", "--crate-type", "bin", "--edition", "2024"]);
    rustc.args(["--target", &variable("TARGET")?]);
    // Avoid everything that would call into a library: unwinding, checks, debug information.
    rustc.args([
        "-C",
        "panic=abort",
        "-C",
        "opt-level=s",
        "-C",
        "debuginfo=0",
        "-C",
        "strip=symbols",
    ]);
    rustc.args(["-C", "overflow-checks=no", "-C", "debug-assertions=no", "-C", "codegen-units=1"]);
    // Nothing is unwound, so the tables for it would only be carried along.
    rustc.args(["-C", "force-unwind-tables=no"]);
    rustc.args(["-C", "relocation-model=static", "-C", "default-linker-libraries=no"]);
    if variable("CARGO_CFG_TARGET_ENV").as_deref() == Ok("musl") {
        // If the C library is linked statically, rustc adds start files, which define `_start`.
        rustc.args(["-C", "link-self-contained=no"]);
    }
    let linker = env::var("RUSTC_LINKER").ok();
    let arguments: &[&str] = if linker.as_deref().is_some_and(is_plain_linker) {
        &["-nostdlib", "-static", "--no-pie", "--build-id=none", "-znoexecstack"]
    } else {
        &[
            "-nostartfiles",
            "-nostdlib",
            "-static",
            "-no-pie",
            "-Wl,--build-id=none",
            "-Wl,-z,noexecstack",
        ]
    };
    for argument in arguments {
        rustc.arg("-C").arg(format!("link-arg={argument}"));
    }
    if let Some(linker) = linker {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    let output = rustc.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns true for a linker such as `rust-lld`, which is not a C compiler that calls one: it needs no C compiler for
/// the target, and takes the arguments without `-Wl`.
fn is_plain_linker(linker: &str) -> bool {
    let name = Path::new(linker).file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    name == "ld" || name.ends_with("lld") || name.ends_with("-ld")
}
