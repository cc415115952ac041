//! The environment, which has the name of the machine.

pub(super) fn boot_id() -> Option<String> {
    // The system reports only the time of the boot, which moves when the clock is set.
    None
}

pub(super) fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}
