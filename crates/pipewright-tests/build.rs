//! Makes the puppet a program without a console where it is to run under Wine.
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
}
