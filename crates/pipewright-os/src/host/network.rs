//! The network as this machine sees it: its own addresses, options of TCP connections, and filesystems on other
//! machines.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::path::Path;

/// Returns the addresses of the interface of that name, IPv4 first. Without an interface of that name, there are none.
///
/// IPv6 addresses that are valid on their link only are left out: others cannot use them without the name of their own
/// interface.
///
/// # Platform
/// Unix: `getifaddrs`. Windows: always the error [`io::ErrorKind::Unsupported`].
///
/// # Errors
/// The system refuses to tell.
///
/// ```
/// # use pipewright_os::host::network::addresses;
/// # if cfg!(target_os = "linux") {
/// let addresses = addresses("lo")?;
/// assert!(addresses.iter().all(|address| address.is_loopback()));
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "getifaddrs")]
pub fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    #[cfg(unix)]
    return interfaces::addresses(name);
    // Nothing on Windows needs them.
    #[cfg(windows)]
    {
        let _ = name;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Sends lost bytes again within about a second, however long the network has been down. By default the time between
/// two attempts doubles: after 3 seconds without a network, the next attempt comes 3 seconds later.
///
/// Returns true if the system keeps to a second from then on, and false if only the first attempts come sooner.
///
/// # Platform
/// Linux 6.15 and newer: `TCP_RTO_MAX_MS`, which limits the time between two attempts to a second. Before, and in
/// addition,
/// `TCP_THIN_LINEAR_TIMEOUTS` keeps the time between the first six attempts the same, while little is under way.
/// Elsewhere: nothing, and false.
///
/// # Errors
/// The socket is no TCP connection.
///
/// ```
/// # use std::net::{TcpListener, TcpStream};
/// # use pipewright_os::host::network::resend_soon;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// resend_soon(&stream)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "TCP_RTO_MAX_MS")]
#[doc(alias = "TCP_THIN_LINEAR_TIMEOUTS")]
pub fn resend_soon(stream: &TcpStream) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    return tcp::resend_soon(stream);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = stream;
        Ok(false)
    }
}

/// Returns true if the system tells that the files below that path are on another machine.
///
/// Memory that is shared through such a file is not shared with other machines, and locks may not hold.
///
/// # Platform
/// Linux: `statfs`: NFS, SMB, AFS, Ceph, Lustre, GPFS, 9P and others. A filesystem in user space (FUSE) counts as
/// remote, except the kinds that are known to be local; the kind is read from `/proc/self/mountinfo`. macOS: `statfs`,
/// without `MNT_LOCAL`. Windows: `GetDriveTypeW` for the volume of the path.
///
/// # Errors
/// The path does not exist, or the system refuses to tell.
///
/// ```
/// # use pipewright_os::host::network::is_network_filesystem;
/// assert!(is_network_filesystem("no such folder".as_ref()).is_err());
/// ```
#[doc(alias = "statfs")]
pub fn is_network_filesystem(path: &Path) -> io::Result<bool> {
    filesystem::is_network_filesystem(path)
}

// Interfaces by `getifaddrs`.
#[cfg(unix)]
mod interfaces {
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
}

// TCP options by `setsockopt`.
#[cfg(target_os = "linux")]
mod tcp {
    use std::io;
    use std::net::TcpStream;
    use std::os::fd::AsRawFd as _;

    use rustix::net::sockopt;

    /// The option of Linux 6.15, from `linux/tcp.h`; the crate libc lacks it.
    const TCP_RTO_MAX_MS: libc::c_int = 44;

    /// The smallest value that the kernel takes.
    const MILLISECONDS: libc::c_int = 1000;

    pub(super) fn resend_soon(stream: &TcpStream) -> io::Result<bool> {
        sockopt::set_tcp_thin_linear_timeouts(stream, true)?;
        let (value, size) = (MILLISECONDS, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the option's value is an int, which lives during the call, and `size` is its size.
        let result = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                TCP_RTO_MAX_MS,
                (&raw const value).cast(),
                size,
            )
        };
        if result == 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            // An older kernel.
            error if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(false),
            error => Err(error),
        }
    }

    #[cfg(test)]
    mod tests {
        use std::net::TcpListener;

        use super::*;

        #[test]
        fn the_options_are_set() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let is_limited = resend_soon(&stream).unwrap();
            assert!(sockopt::tcp_thin_linear_timeouts(&stream).unwrap());
            let (mut value, mut size) =
                (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
            // SAFETY: `value` has room for the int of the option, as `size` says.
            let result = unsafe {
                libc::getsockopt(
                    stream.as_raw_fd(),
                    libc::IPPROTO_TCP,
                    TCP_RTO_MAX_MS,
                    (&raw mut value).cast(),
                    &raw mut size,
                )
            };
            assert_eq!(result == 0, is_limited);
            assert_eq!(value, if is_limited { MILLISECONDS } else { 0 });
        }
    }
}

// `statfs`, and `/proc/self/mountinfo` for filesystems in user space.
#[cfg(target_os = "linux")]
mod filesystem {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::{fs, io};

    /// The numbers of network filesystems, from `linux/magic.h` and from the sources of those outside the kernel.
    const NETWORK: [u32; 17] = [
        0x6969,      // NFS
        0x517b,      // smbfs
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB 2 and 3
        0x564c,      // NCP
        0x5346_414f, // AFS
        0x6b41_4653, // kAFS
        0x7375_7245, // Coda
        0x00c3_6400, // Ceph
        0x0102_1997, // 9P
        0x0bd0_0bd0, // Lustre
        0x4750_4653, // GPFS
        0x013e_11ed, // GPFS, older
        0x2003_0528, // OrangeFS
        0xaad7_aaea, // PanFS
        0x1980_0202, // BeeGFS
        0x7461_636f, // OCFS2
    ];

    const FUSE: u32 = 0x6573_5546;

    /// Kinds of FUSE whose files are on this machine. `fuseblk` has a disk below it.
    const LOCAL_FUSE: [&str; 10] = [
        "fuseblk",
        "fuse.bindfs",
        "fuse.encfs",
        "fuse.exfat",
        "fuse.fuse-overlayfs",
        "fuse.gocryptfs",
        "fuse.lxcfs",
        "fuse.mergerfs",
        "fuse.ntfs-3g",
        "fuse.unionfs",
    ];

    pub(super) fn is_network_filesystem(path: &Path) -> io::Result<bool> {
        // The numbers have 32 bits; the field is wider and signed on some processors.
        let number = rustix::fs::statfs(path)?.f_type as u32;
        if number != FUSE {
            return Ok(NETWORK.contains(&number));
        }
        let device = fs::metadata(path)?.dev();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Ok(!is_local_fuse(&mounts, (rustix::fs::major(device), rustix::fs::minor(device))))
    }

    /// Returns true if the list of mounts has that device, as a kind of FUSE that is local.
    fn is_local_fuse(mounts: &str, (major, minor): (u32, u32)) -> bool {
        let device = format!("{major}:{minor}");
        mounts.lines().any(|line| {
            // proc(5): the device is the third field; the kind follows the optional fields, which end with a dash.
            let has_device = line.split(' ').nth(2) == Some(&device);
            let kind = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next());
            has_device && kind.is_some_and(|kind| LOCAL_FUSE.contains(&kind))
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn fuse_is_remote_unless_its_kind_is_local() {
            let mounts = "36 35 0:44 / /far rw shared:1 - fuse.sshfs me@far:/ rw\n\
                          37 35 0:45 / /near rw - fuse.gocryptfs /plain rw\n\
                          38 35 8:17 / /stick rw shared:2 master:1 - fuseblk /dev/sdb1 rw\n";
            assert!(!is_local_fuse(mounts, (0, 44)));
            assert!(is_local_fuse(mounts, (0, 45)));
            assert!(is_local_fuse(mounts, (8, 17)));
            assert!(!is_local_fuse(mounts, (0, 46)));
        }

        #[test]
        fn proc_is_no_network_filesystem() {
            assert!(!is_network_filesystem("/proc".as_ref()).unwrap());
        }
    }
}

// `statfs`.
#[cfg(target_os = "macos")]
mod filesystem {
    use std::ffi::CString;
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    pub(super) fn is_network_filesystem(path: &Path) -> io::Result<bool> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let mut stat = MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: a path that ends with a zero, and room for the struct.
        if unsafe { libc::statfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has filled it in; all zeroes was a value before.
        let stat = unsafe { stat.assume_init() };
        Ok(stat.f_flags & libc::MNT_LOCAL as u32 == 0)
    }
}

// `GetDriveTypeW` for the volume of a path.
#[cfg(windows)]
mod filesystem {
    use std::io;
    use std::os::windows::ffi::OsStrExt;
    use std::path::Path;

    use windows_sys::Win32::Storage::FileSystem::{GetDriveTypeW, GetVolumePathNameW};
    use windows_sys::Win32::System::WindowsProgramming::DRIVE_REMOTE;

    pub(super) fn is_network_filesystem(path: &Path) -> io::Result<bool> {
        // The call below takes any path, so a missing one is found here.
        let path = std::path::absolute(path)?;
        path.metadata()?;
        let name: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
        // The volume is a beginning of the path, with a backslash at its end.
        let mut volume = vec![0_u16; name.len() + 1];
        let room = u32::try_from(volume.len()).unwrap_or(u32::MAX);
        // SAFETY: a path that ends with a zero, and a live buffer with its size.
        if unsafe { GetVolumePathNameW(name.as_ptr(), volume.as_mut_ptr(), room) } == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the name of a volume, which ends with a zero.
        Ok(unsafe { GetDriveTypeW(volume.as_ptr()) } == DRIVE_REMOTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_path_is_an_error() {
        let error = is_network_filesystem("no such folder/at all".as_ref()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_existing_folder_has_an_answer() {
        // Either answer is right: a developer's folder may be mounted from elsewhere.
        is_network_filesystem(&std::env::temp_dir()).unwrap();
    }
}
