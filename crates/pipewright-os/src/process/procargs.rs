//! The arguments and the environment of a process, as macOS gives them (`KERN_PROCARGS2`).

#[cfg(target_os = "macos")]
use std::io;

/// The most that the kernel gives: `ARG_MAX`, and the number in front.
#[cfg(target_os = "macos")]
const MOST_BYTES: usize = (1 << 20) + 4096;

/// Reads the block of a process; `None` if it is gone, has ended, or may not be read.
#[cfg(target_os = "macos")]
pub(crate) fn read(pid: u32) -> io::Result<Option<Vec<u8>>> {
    let Ok(pid) = libc::c_int::try_from(pid) else { return Ok(None) };
    let mut block = Vec::<u8>::new();
    block.try_reserve_exact(MOST_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut length = MOST_BYTES;
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid];
    // SAFETY: a name of three numbers, a live buffer and its size, and no new value.
    let result = unsafe {
        let (name, block) = (name.as_mut_ptr(), block.as_mut_ptr().cast());
        libc::sysctl(name, 3, block, &raw mut length, std::ptr::null_mut(), 0)
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOMEM) => Err(error),
            _ => Ok(None),
        };
    }
    // SAFETY: the call has written that many bytes, which is no more than there was room for.
    unsafe { block.set_len(length.min(MOST_BYTES)) };
    Ok(Some(block))
}

/// Returns true if a block has that variable with that value: the number of arguments, the path, zeroes, the arguments, the
/// environment.
pub(crate) fn has_variable(block: &[u8], name: &str, value: &str) -> bool {
    let Some((count, rest)) = block.split_first_chunk::<4>() else { return false };
    let Ok(count) = usize::try_from(i32::from_ne_bytes(*count)) else { return false };
    let path_ends = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let rest = rest.get(path_ends..).unwrap_or_default();
    let begins = rest.iter().position(|byte| *byte != 0).unwrap_or(rest.len());
    let rest = rest.get(begins..).unwrap_or_default();
    let environment = rest.split(|byte| *byte == 0).skip(count);
    // An empty string is its end. Others of the system's own follow.
    let is_it = |variable: &[u8]| {
        let rest = variable.strip_prefix(name.as_bytes());
        rest.and_then(|rest| rest.strip_prefix(b"=")) == Some(value.as_bytes())
    };
    environment.take_while(|variable| !variable.is_empty()).any(is_it)
}

#[cfg(test)]
mod tests {
    use super::has_variable;

    fn block(arguments: &[&str], environment: &[&str]) -> Vec<u8> {
        let mut block = (arguments.len() as i32).to_ne_bytes().to_vec();
        block.extend_from_slice(b"/usr/local/bin/job\0\0\0\0\0");
        for text in [arguments, environment].concat() {
            block.extend_from_slice(text.as_bytes());
            block.push(0);
        }
        block.extend_from_slice(b"\0executable_path=/usr/local/bin/job\0AFTER=1\0");
        block
    }

    #[test]
    fn only_the_environment_counts() {
        let block = block(&["job", "A=argument", ""], &["A=1", "B=2=3", "C="]);
        for (name, value, has) in [
            ("A", "1", true),
            ("B", "2=3", true),
            ("C", "", true),
            ("A", "argument", false),
            ("A", "", false),
            ("B", "2", false),
            ("AFTER", "1", false),
            ("", "", false),
        ] {
            assert_eq!(has_variable(&block, name, value), has, "{name}={value}");
        }
    }

    #[test]
    fn a_block_of_a_protected_process_or_a_broken_one_has_no_variable() {
        assert!(!has_variable(&block(&["job"], &[]), "A", "1"));
        let whole = block(&["job", "x"], &["A=1"]);
        for end in 0..whole.len() {
            let cut = has_variable(&whole[..end], "A", "1");
            assert!(!cut || end >= whole.len() - 45, "{end}");
        }
        assert!(!has_variable(&[0xff; 64], "A", "1"));
        assert!(!has_variable(&[0; 64], "A", "1"));
    }
}
