//! Checks of an operation that need no system call.

use pipewright_os::base::aligned::AlignedBuf;
use pipewright_os::disk::file::{Action, Alignment};

use super::DiskFile;
use crate::error::{ErrorKind, Misaligned, Part};

impl DiskFile {
    /// Returns the error of an operation that cannot succeed.
    pub(crate) fn rejection(
        &self,
        action: Action,
        buffer: &AlignedBuf,
        offset: u64,
    ) -> Option<ErrorKind> {
        let options = &self.0.options;
        let is_writable = options.write || options.append;
        match action {
            Action::Read if !options.read => {
                return Some(ErrorKind::NotOpenedFor { what: "reading" });
            }
            Action::Write | Action::Allocate(_) if !is_writable => {
                return Some(ErrorKind::NotOpenedFor { what: "writing" });
            }
            Action::Write | Action::SyncAll | Action::SyncData if self.is_poisoned() => {
                return Some(ErrorKind::Poisoned);
            }
            Action::Read | Action::Write => {}
            _ => return None,
        }
        // The end of the operation has to be a valid offset too (off_t).
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Some(ErrorKind::InvalidInput);
        }
        if !options.direct {
            return None;
        }
        let offset = if options.append { 0 } else { offset };
        let address = buffer.as_ptr() as u64;
        misaligned(self.0.alignment, address, offset, buffer.len()).map(ErrorKind::Misaligned)
    }

    /// Returns true if cached data of the file can be read at once.
    pub(crate) fn may_be_cached(&self) -> bool {
        self.0.options.read && !self.0.options.direct
    }
}

/// Returns the first misaligned part.
fn misaligned(alignment: Alignment, address: u64, offset: u64, bytes: usize) -> Option<Misaligned> {
    let parts = [
        (Part::Memory, alignment.memory, address),
        (Part::Offset, alignment.offset, offset),
        (Part::Length, alignment.offset, bytes as u64),
    ];
    let off = |(_, needed, given): &(Part, usize, u64)| given % (*needed).max(1) as u64 != 0;
    let (part, needed, given) = parts.into_iter().find(off)?;
    Some(Misaligned { part, needed, given, reported: alignment.reported })
}

#[cfg(test)]
mod tests {
    use super::{Alignment, Part, misaligned};

    #[test]
    fn misaligned_error_names_part_required_and_given_value() {
        let alignment = Alignment { memory: 4, offset: 512, reported: true, direct: Some(true) };
        assert_eq!(misaligned(alignment, 4096, 512, 1024), None);
        for (address, offset, bytes, part, needed, given) in [
            (4097, 512, 512, Part::Memory, 4, 4097),
            (4096, 100, 512, Part::Offset, 512, 100),
            (4096, 512, 511, Part::Length, 512, 511),
        ] {
            let found = misaligned(alignment, address, offset, bytes).unwrap();
            assert_eq!((found.part, found.needed, found.given), (part, needed, given));
        }
        let found = misaligned(Alignment::ASSUMED, 0, 512, 4096).unwrap();
        assert_eq!(
            found.to_string(),
            "the offset of a direct request must be a multiple of 4096, got 512 (assumed: the system \
             does not report it)"
        );
    }
}
