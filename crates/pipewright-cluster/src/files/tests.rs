//! Hosts whose nodes send what they were not asked for, and nodes whose host gives an attempt up.

use std::collections::VecDeque;
use std::sync::{Arc, mpsc};

use pipewright_batch::{AttemptKey, SentFile};

use super::*;
use crate::outbox::{Lane, Outbox};
use crate::wire::{Frames, FromWorker, Text, parse};

const KEY: AttemptKey = AttemptKey { job: 1, attempt: 1 };

type Told = mpsc::Receiver<(Files, Option<String>)>;

fn host_files() -> (HostFiles, Told) {
    let (sender, told) = mpsc::channel();
    let tell: Tell = Arc::new(move |_, files, failure| sender.send((files, failure)).unwrap());
    (HostFiles::new(Outbox::new(), tell), told)
}

/// Asks for the file `out` in that folder. Nobody wants it once the result is dropped.
fn ask(files: &HostFiles, folder: &Path) -> Arc<()> {
    let wanted = Arc::new(());
    let fetching = Fetching {
        key: KEY,
        files: VecDeque::from([folder.join("out")]),
        current_dir: None,
        is_durable: true,
        wanted: Arc::downgrade(&wanted),
    };
    files.fetch(fetching).unwrap();
    wanted
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn bytes(text: &str) -> FilePart {
    FilePart::Bytes(text.as_bytes().to_vec())
}

#[test]
fn a_node_that_sends_files_that_were_not_asked_for_is_refused_and_none_of_them_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let (files, told) = host_files();
    for part in [FilePart::Begin(0o644), bytes("x"), FilePart::End(None)] {
        let error = files.arrived(part).unwrap_err().to_string();
        assert!(error.contains("a file that was not asked for"), "{error}");
    }
    let _wanted = ask(&files, folder.path());
    // A file has one beginning that counts.
    for part in [FilePart::Begin(0), bytes("no"), FilePart::Begin(0o644), bytes("yes")] {
        files.arrived(part).unwrap();
    }
    files.arrived(FilePart::End(None)).unwrap();
    assert_eq!(told.recv().unwrap(), (Files::Fetched, None));
    files.arrived(FilePart::Begin(0o644)).unwrap_err();
    files.stored(None).unwrap_err();
    files.close();
    assert_eq!(names(folder.path()), ["out"]);
    assert_eq!(fs::read(folder.path().join("out")).unwrap(), b"yes");
}

#[test]
fn the_folders_that_are_made_for_a_file_are_known_so_that_they_are_put_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/file");
    let file = Arriving::create(&path, 0o644).unwrap();
    assert_eq!(file.made, [folder.path().join("a/b"), folder.path().join("a")]);
    file.finish(true).unwrap();
    assert!(Arriving::create(&path, 0o644).unwrap().made.is_empty());
    assert_eq!(folder_of(Path::new("file")), Path::new("."));
}

#[test]
fn a_node_that_sends_more_of_a_file_than_was_allowed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (files, _told) = host_files();
    let _wanted = ask(&files, folder.path());
    files.arrived(FilePart::Begin(0o644)).unwrap();
    let error = files.arrived(FilePart::Bytes(vec![0; 5 << 20])).unwrap_err().to_string();
    assert!(error.contains("more of a file than was allowed"), "{error}");
    files.close();
    assert_eq!(names(folder.path()), [""; 0], "the connection ends, and what has arrived is gone");
}

#[test]
fn a_file_that_has_not_begun_or_that_nobody_wants_any_more_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let (files, told) = host_files();
    let wanted = ask(&files, folder.path());
    files.arrived(FilePart::End(None)).unwrap();
    let failure = told.recv().unwrap().1.unwrap();
    assert!(failure.contains("cannot fetch ") && failure.contains("out"), "{failure}");
    drop(wanted);
    let wanted = ask(&files, folder.path());
    files.arrived(FilePart::Begin(0o644)).unwrap();
    files.arrived(bytes("x")).unwrap();
    drop(wanted);
    files.arrived(FilePart::End(None)).unwrap();
    assert!(told.recv().unwrap().1.is_some());
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_file_that_is_missing_is_named_and_nothing_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let (files, told) = host_files();
    let wanted = Arc::new(());
    let sending = Sending {
        key: KEY,
        files: vec![SentFile::new(folder.path().join("missing"), true)],
        current_dir: None,
        wanted: Arc::downgrade(&wanted),
    };
    files.send(sending).unwrap();
    let (what, failure) = told.recv().unwrap();
    assert_eq!(what, Files::Sent);
    assert!(failure.unwrap().contains("missing"));
    files.close();
}

/// Reads the next answer of a node to the files that it got.
fn answer(outbox: &Outbox) -> Option<String> {
    let mut frames = Frames::default();
    loop {
        let mut bytes = Vec::new();
        outbox.take_for_test(&mut bytes);
        frames.fill(&mut &bytes[..]).unwrap();
        while let Some(body) = frames.next().unwrap() {
            if let FromWorker::Stored(failure) = parse(body).unwrap() {
                return failure;
            }
        }
    }
}

#[test]
fn the_failure_of_an_attempt_that_the_host_gave_up_is_not_that_of_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::new();
    let node = NodeFiles::start(Arc::clone(&outbox)).unwrap();
    let path = |name: &str| FileOrder::Path(Text::of(folder.path().join(name)));
    fs::create_dir(folder.path().join("taken")).unwrap();
    let (begin, end) = (
        || FileOrder::Part(FilePart::Begin(0o640)),
        |reason| FileOrder::Part(FilePart::End(reason)),
    );
    [path("taken"), begin(), end(None), FileOrder::StoreAll]
        .into_iter()
        .for_each(|order| node.push(order));
    assert!(answer(&outbox).unwrap().contains("cannot write "));
    [path("taken"), begin(), end(None)].into_iter().for_each(|order| node.push(order));
    [path("half"), begin(), end(Some(String::new()))]
        .into_iter()
        .for_each(|order| node.push(order));
    [path("new/whole"), begin(), end(None), FileOrder::StoreAll]
        .into_iter()
        .for_each(|order| node.push(order));
    assert_eq!(answer(&outbox), None);
    assert_eq!(names(folder.path()), ["new", "taken"]);
    assert_eq!(names(&folder.path().join("new")), ["whole"]);
    outbox.close();
    assert!(outbox.arrived(Lane::Sent, 4 << 20), "what was stored is allowed again");
}
