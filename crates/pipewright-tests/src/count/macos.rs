//! Counts from `/dev/fd` and `ps`.

use std::process::Command;

use crate::alive;

/// Returns the number of handles that this process has open.
pub fn handles() -> usize {
    pipewright_os::base::handle::open_handles().expect("the handles can be listed").len()
}

/// Returns the same: no thread closes a handle later.
pub fn handles_at_rest() -> usize {
    handles()
}

/// Returns the unreaped children of this process.
pub fn zombies() -> Vec<u32> {
    children().into_iter().filter(|pid| alive::is_zombie(*pid)).collect()
}

/// Returns the children of this process, of any thread.
pub fn children() -> Vec<u32> {
    alive::children_of(std::process::id())
}

/// Returns the number of threads of this process.
pub fn threads() -> usize {
    // A line for each, below that of the titles.
    ps(&["-M"]).lines().count() - 1
}

/// Returns the memory that this process uses now, in bytes.
pub fn rss_bytes() -> usize {
    ps(&["-o", "rss="]).trim().parse::<usize>().expect("a number of KiB") * 1024
}

/// Returns the memory that this process uses now: its allocator reports no more.
pub fn kept_bytes() -> usize {
    rss_bytes()
}

/// The noise in that figure.
pub const KEPT_NOISE_BYTES: usize = 2 << 20;

fn ps(options: &[&str]) -> String {
    let own = std::process::id().to_string();
    let output = Command::new("/bin/ps").args(options).args(["-p", &own]).output();
    String::from_utf8(output.expect("every macOS has ps").stdout).expect("text")
}
