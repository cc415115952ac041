//! Interfaces by `getifaddrs`.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

pub(super) fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    let list = List::new()?;
    let mut found = Vec::new();
    let mut entry = list.0;
    while !entry.is_null() {
        // SAFETY: an entry of the list, which lives as long as `list`.
        let interface = unsafe { &*entry };
        // SAFETY: the system ends each name with NUL, and it lives as long as `list`.
        let its_name = unsafe { CStr::from_ptr(interface.ifa_name) };
        if its_name.to_bytes() == name.as_bytes() && !interface.ifa_addr.is_null() {
            found.extend(address(interface.ifa_addr));
        }
        entry = interface.ifa_next;
    }
    found.sort_by_key(IpAddr::is_ipv6);
    Ok(found)
}

/// The list of all addresses, freed when it is dropped.
struct List(*mut libc::ifaddrs);

impl List {
    fn new() -> io::Result<List> {
        let mut list = ptr::null_mut();
        // SAFETY: `list` is a place for a pointer, which the call writes only if it succeeds.
        match unsafe { libc::getifaddrs(&raw mut list) } {
            0 => Ok(List(list)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list is from `getifaddrs`, is freed once, and nothing refers to it any more.
        unsafe { libc::freeifaddrs(self.0) }
    }
}

/// Returns the address behind a pointer that is not null. `None`: it is of another family.
fn address(of: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: every address begins with its family.
    let family = unsafe { (*of).sa_family };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this type. The list may not be aligned for it.
            let address = unsafe { of.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family has this type. The list may not be aligned for it.
            let address = unsafe { of.cast::<libc::sockaddr_in6>().read_unaligned() };
            let address = Ipv6Addr::from(address.sin6_addr.s6_addr);
            (!address.is_unicast_link_local()).then_some(address.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address_and_no_other_name_does() {
        let name = if cfg!(target_os = "linux") { "lo" } else { "lo0" };
        assert!(addresses(name).unwrap().contains(&Ipv4Addr::LOCALHOST.into()));
        assert!(addresses("").unwrap().is_empty());
        assert!(addresses("no-such-interface").unwrap().is_empty());
    }
}
