//! `statfs`, and `/proc/self/mountinfo` for filesystems in user space.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
