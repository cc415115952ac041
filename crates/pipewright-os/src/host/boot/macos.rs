//! `sysctlbyname`.

use crate::host::sysctl::text;

pub(super) fn boot_id() -> Option<String> {
    text(c"kern.bootsessionuuid")
}

pub(super) fn host_name() -> Option<String> {
    text(c"kern.hostname")
}
