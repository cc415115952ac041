//! `sysctlbyname`.

use std::ffi::CStr;
use std::ptr;

use super::{CpuTime, HostInfo};

pub(super) fn look() -> HostInfo {
    HostInfo {
        system: text(c"kern.osproductversion").map(|version| format!("macOS {version}")),
        kernel: text(c"kern.osrelease").map(|version| format!("Darwin {version}")),
        processor: text(c"machdep.cpu.brand_string"),
        virtual_machine: (number(c"kern.hv_vmm_present") == Some(1)).then(|| "yes".to_owned()),
        memory_bytes: number(c"hw.memsize"),
        ..HostInfo::default()
    }
}

pub(super) fn load() -> Option<f64> {
    let mut load = 0.0;
    // SAFETY: space for one value, as requested.
    (unsafe { libc::getloadavg(&raw mut load, 1) } == 1).then_some(load)
}

pub(super) fn cpu_time() -> Option<CpuTime> {
    // Mach has a call for it, which this crate does not bind.
    None
}

pub(super) fn free_memory_bytes() -> Option<u64> {
    // The kernel's count of free memory excludes memory that it would reclaim.
    None
}

/// Returns the bytes of a value, if it fits.
fn bytes<const ROOM: usize>(name: &CStr) -> Option<([u8; ROOM], usize)> {
    let mut value = [0_u8; ROOM];
    let mut length = ROOM;
    let place = value.as_mut_ptr().cast();
    // SAFETY: a name that ends with a zero, a live buffer and its size, and no new value.
    let result =
        unsafe { libc::sysctlbyname(name.as_ptr(), place, &raw mut length, ptr::null_mut(), 0) };
    (result == 0).then_some((value, length))
}

fn text(name: &CStr) -> Option<String> {
    let (value, length) = bytes::<256>(name)?;
    let text = String::from_utf8_lossy(value.get(..length)?);
    Some(text.trim_end_matches('\0').to_owned())
}

fn number(name: &CStr) -> Option<u64> {
    match bytes::<8>(name)? {
        (value, 8) => Some(u64::from_ne_bytes(value)),
        ([a, b, c, d, ..], 4) => Some(u64::from(u32::from_ne_bytes([a, b, c, d]))),
        _ => None,
    }
}
