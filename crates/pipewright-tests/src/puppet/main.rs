//! The program of all test children: it performs the acts in its arguments, one after the other.
//!
//! ```text
//! puppet out=hello err-bytes=100000 wait=0.5 exit=3
//! ```
//!
//! Commas separate the parts of an act. `spawn=` takes the acts of a grandchild, separated by
//! semicolons, and does not wait for it.

mod acts;
#[cfg(target_os = "linux")]
mod peer;
#[cfg(unix)]
mod play;
mod probe;
mod started;
mod streams;
#[cfg(unix)]
#[path = "unix.rs"]
mod system;
#[cfg(windows)]
#[path = "windows.rs"]
mod system;
mod worker;

fn main() {
    system::begin();
    // Acts are text; the program's own name need not be.
    for act in std::env::args_os().skip(1) {
        let act = act.to_string_lossy();
        let (name, value) = act.split_once('=').unwrap_or((&act, ""));
        if let Err(error) = acts::perform(name, value) {
            eprintln!("puppet: {act}: {error}");
            std::process::exit(99);
        }
    }
}
