//! `/proc/self/fd`.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use super::OpenHandle;
use crate::base::handle::{is_close_on_exec, kind_of_number};

pub(super) fn open_handles() -> io::Result<Vec<OpenHandle>> {
    let dir = fs::File::open("/proc/self/fd")?;
    // The list also contains the descriptor of the directory, which is open only for this call.
    let own = std::os::fd::AsRawFd::as_raw_fd(&dir);
    let mut reader = rustix::fs::Dir::read_from(dir.as_fd())?;
    let mut numbers = Vec::new();
    while let Some(entry) = reader.read() {
        let entry = entry?;
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok());
        numbers.extend(number.filter(|number| *number != own));
    }
    drop(reader);
    numbers.sort_unstable();
    Ok(numbers.into_iter().filter_map(describe).collect())
}

/// Describes a handle. `None`: it has been closed meanwhile (the second descriptor of the directory
/// itself). The next call may find another handle under that number: nothing is done to it.
fn describe(number: i32) -> Option<OpenHandle> {
    let kind = kind_of_number(number).ok()?;
    let close_on_exec = is_close_on_exec(number).ok()?;
    let target = fs::read_link(format!("/proc/self/fd/{number}")).ok();
    Some(OpenHandle {
        number: i64::from(number),
        kind,
        target: target.map(|target| target.to_string_lossy().into_owned()),
        inheritable: !close_on_exec,
    })
}
