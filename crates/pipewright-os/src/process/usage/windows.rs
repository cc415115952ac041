//! `GetProcessTimes`.

use std::io;

use super::Spent;
use crate::process::open::object::Process;

pub(super) fn of_this_process() -> io::Result<Spent> {
    Ok(Spent { cpu: Process::cpu_of_this()?, switches: None })
}
