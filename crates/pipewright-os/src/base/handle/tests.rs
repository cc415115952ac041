//! Tests for handles of every kind, as std and this crate open them.

use std::fs::{File, OpenOptions};
use std::os::windows::fs::OpenOptionsExt as _;
use std::os::windows::io::{AsHandle, AsRawHandle, FromRawHandle, IntoRawHandle, OwnedHandle};

use super::{Handle, HandleKind, imp};
use crate::base::pipe::{PipeOptions, pair};
use crate::base::wake::Wake;

/// Required to open a directory.
const BACKUP_SEMANTICS: u32 = 0x0200_0000;

fn exe() -> Handle {
    Handle::from(File::open(std::env::current_exe().unwrap()).unwrap())
}

#[test]
fn every_kind_is_known() {
    let dir = OpenOptions::new()
        .read(true)
        .custom_flags(BACKUP_SEMANTICS)
        .open(std::env::temp_dir())
        .unwrap();
    let (reader, writer) = pair(PipeOptions::default()).unwrap();
    let wake = Wake::new().unwrap();
    let event = imp::copy_of(wake.as_handle().as_raw_handle(), false).unwrap();
    for (handle, kind) in [
        (exe(), HandleKind::File),
        (Handle::from(dir), HandleKind::Directory),
        (Handle::from(reader), HandleKind::Pipe),
        (Handle::from(writer), HandleKind::Pipe),
        (crate::base::stdio::null().unwrap(), HandleKind::CharDevice),
        (Handle::from(event), HandleKind::Unknown),
    ] {
        assert_eq!(handle.kind().unwrap(), kind, "{handle:?}");
    }
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let raw = std::os::windows::io::AsRawSocket::as_raw_socket(&socket) as usize;
    // SAFETY: open for as long as this is used.
    let socket_handle = unsafe {
        std::os::windows::io::BorrowedHandle::borrow_raw(std::ptr::without_provenance_mut(raw))
    };
    assert_eq!(imp::kind_of(socket_handle).unwrap(), HandleKind::Socket);
}

#[test]
fn a_duplicate_refers_to_the_same_file_and_is_not_inheritable() {
    let first = exe();
    let second = first.try_clone().unwrap();
    let third = Handle::copy_of_number(i32::try_from(first.number()).unwrap()).unwrap();
    assert_ne!(first.number(), second.number());
    for copy in [&first, &second, &third] {
        assert!(!imp::inheritable(copy.as_handle()).unwrap());
        assert_eq!(copy.kind().unwrap(), HandleKind::File);
    }
    let given = imp::copy_of(first.as_raw_handle(), true).unwrap();
    assert!(imp::inheritable(given.as_handle()).unwrap());
    // The file offset is shared.
    let mut four = [0; 4];
    std::io::Read::read_exact(&mut File::from(second), &mut four).unwrap();
    let mut file = File::from(OwnedHandle::from(third));
    assert_eq!(std::io::Seek::stream_position(&mut file).unwrap(), 4);
}

#[test]
fn a_number_that_is_not_open_is_an_error() {
    for number in [0, -1, -2, i32::MIN, 0x7fff_fff0] {
        let error = Handle::copy_of_number(number).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(6), "{number}: {error}");
    }
}

#[test]
fn a_handle_converts_to_raw_and_back() {
    let raw = exe().into_raw_handle();
    // SAFETY: released above, and owned again here.
    let handle = unsafe { Handle::from_raw_handle(raw) };
    assert_eq!(handle.as_raw_handle(), raw);
    assert_eq!(handle.number(), raw.addr() as i64);
    assert_eq!(format!("{handle:?}"), format!("Handle({})", handle.number()));
}
