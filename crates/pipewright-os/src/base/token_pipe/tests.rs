//! Folders of FIFOs that were left behind, and those that are in use.

use super::*;

/// Returns a prefix that no other test has.
fn prefix(name: &str) -> String {
    format!("pipewright-test-{}-{name}-", std::process::id())
}

#[test]
fn a_folder_that_a_killed_process_left_is_removed_by_the_next() {
    let (parent, prefix) = (std::env::temp_dir(), prefix("left"));
    let used = NamedFifo::create(&parent, &prefix).unwrap();
    // A killed process leaves a folder with a FIFO, and its lock is gone.
    let left = parent.join(format!("{prefix}1-0"));
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("fifo"), "").unwrap();
    // Other names are not ours, and neither is a folder with something else in it.
    let other = parent.join(format!("other-{prefix}"));
    let full = parent.join(format!("{prefix}full"));
    std::fs::create_dir(&other).unwrap();
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("precious"), "").unwrap();
    let next = NamedFifo::create(&parent, &prefix).unwrap();
    assert!(!left.exists());
    assert!(used.path().exists() && next.path().exists());
    assert!(other.exists() && full.join("precious").exists());
    std::fs::remove_dir(&other).unwrap();
    std::fs::remove_dir_all(&full).unwrap();
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_fork_that_drops_its_copy_removes_no_folder_of_its_parent() {
    let mut fifo = Some(NamedFifo::create(&std::env::temp_dir(), &prefix("fork")).unwrap());
    let dropped = crate::base::generation::tests::in_a_fork(|| {
        drop(fifo.take());
        true
    });
    assert!(dropped && fifo.unwrap().path().exists());
}

#[test]
fn a_name_that_is_taken_is_not_used() {
    let (parent, prefix) = (std::env::temp_dir(), prefix("taken"));
    // A link to a folder of somebody else must not be followed.
    let links = (0..4).map(|number| {
        let link = parent.join(format!("{prefix}{}-{number}", std::process::id()));
        std::os::unix::fs::symlink("/", &link).unwrap();
        link
    });
    let links: Vec<_> = links.collect();
    let fifo = NamedFifo::create(&parent, &prefix).unwrap();
    assert!(fifo.path().starts_with(&parent));
    assert!(links.iter().all(|link| link.is_symlink() && !fifo.path().starts_with(link)));
    links.iter().for_each(|link| std::fs::remove_file(link).unwrap());
}

#[test]
fn ends_for_children_are_in_blocking_mode() {
    let fifo = NamedFifo::create(&std::env::temp_dir(), &prefix("ends")).unwrap();
    let tokens = TokenPipe::open(fifo.path()).unwrap();
    let (reader, writer) = fifo.ends().unwrap();
    for end in [&reader, &writer] {
        let flags = rustix::fs::fcntl_getfl(end).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "{flags:?}");
    }
    tokens.put(b'+').unwrap();
    // The ends find the same pipe after its name is gone.
    drop(fifo);
    let ends = TokenPipe::from_numbers(
        reader.number().try_into().unwrap(),
        writer.number().try_into().unwrap(),
    );
    assert_eq!(ends.unwrap().try_take().unwrap(), Some(b'+'));
    assert_eq!(tokens.try_take().unwrap(), None);
}

#[test]
fn ends_that_this_process_has_opened_are_not_inherited() {
    let fifo = NamedFifo::create(&std::env::temp_dir(), &prefix("own")).unwrap();
    let (reader, writer) = fifo.ends().unwrap();
    let [read, write] = [&reader, &writer].map(|end| i32::try_from(end.number()).unwrap());
    assert!(!TokenPipe::are_inherited(read, write).unwrap());
    assert!(TokenPipe::are_inherited(0, 1).unwrap());
    assert!(TokenPipe::are_inherited(0, i32::MAX).is_err());
}
