//! A file by tokio's traits.

use std::future::Future;
use std::io::{ErrorKind, SeekFrom};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use pipewright_disk::{AsyncFile, BackendKind, DiskFile, EngineOptions, SharedEngine};
use pipewright_test_macros::watched_test;
use pipewright_tests::skip::{Need, skipped};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncSeek as _, AsyncSeekExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};

use super::{BACKENDS, engine, file_with, folder, pattern};

/// Returns a current-thread runtime and a multi-thread one. Neither has a driver enabled, because files need none.
fn runtimes() -> [Runtime; 2] {
    let many = Builder::new_multi_thread().worker_threads(2).build().unwrap();
    [Builder::new_current_thread().build().unwrap(), many]
}

/// Returns engines that complete nothing on the caller, so that each operation is awaited, and the default engine.
fn engines() -> Vec<(BackendKind, SharedEngine)> {
    let mut engines = vec![(BackendKind::Auto, SharedEngine::new(Default::default()).unwrap())];
    for backend in BACKENDS {
        let options =
            EngineOptions { backend, cached_first: false, depth: 4, ..Default::default() };
        if engine(options).is_some() {
            engines.push((backend, SharedEngine::new(options).unwrap()));
        }
    }
    engines
}

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// One call of a script.
#[derive(Debug, Clone)]
enum Act {
    Write { bytes: usize, seed: u8 },
    Read { bytes: usize },
    DroppedRead { bytes: usize },
    Seek { to: SeekFrom },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let bytes = 0..700_000_usize;
    let seek = prop_oneof![
        (0..1_000_000_u64).prop_map(SeekFrom::Start),
        (-300_000..300_000_i64).prop_map(SeekFrom::Current),
        (-900_000..1000_i64).prop_map(SeekFrom::End),
    ];
    let act = prop_oneof![
        (bytes.clone(), any::<u8>()).prop_map(|(bytes, seed)| Act::Write { bytes, seed }),
        bytes.clone().prop_map(|bytes| Act::Read { bytes }),
        bytes.prop_map(|bytes| Act::DroppedRead { bytes }),
        seek.prop_map(|to| Act::Seek { to }),
    ];
    proptest::collection::vec(act, 1..12)
}

/// Runs a script on the file and on a `Vec`, whose content must stay equal.
async fn run_script(stream: &mut AsyncFile, model: &mut Vec<u8>, acts: &[Act]) {
    let mut place = 0;
    for act in acts {
        match act {
            Act::Write { bytes, seed } => {
                let bytes: Vec<u8> = pattern(*bytes).iter().map(|byte| byte ^ seed).collect();
                stream.write_all(&bytes).await.unwrap();
                if !bytes.is_empty() {
                    model.resize(model.len().max(place + bytes.len()), 0);
                    model[place..place + bytes.len()].copy_from_slice(&bytes);
                }
                place += bytes.len();
            }
            Act::Read { bytes } => {
                let mut read = Vec::new();
                stream.take(*bytes as u64).read_to_end(&mut read).await.unwrap();
                let there = model.get(place..).unwrap_or_default();
                assert!(read == there[..there.len().min(*bytes)], "{act:?} at {place}");
                place += read.len();
            }
            Act::DroppedRead { bytes } => {
                let mut read = vec![0; *bytes];
                let there = model.get(place..).unwrap_or_default();
                if let Poll::Ready(count) = poll_once(stream.read(&mut read)) {
                    let count = count.unwrap();
                    assert!(read[..count] == there[..count], "{act:?} at {place}");
                    assert!(count > 0 || *bytes == 0 || there.is_empty());
                    place += count;
                }
            }
            Act::Seek { to } => {
                let (base, distance) = match *to {
                    SeekFrom::Start(place) => (place, 0),
                    SeekFrom::Current(distance) => (place as u64, distance),
                    SeekFrom::End(distance) => (model.len() as u64, distance),
                };
                let position = stream.seek(*to).await;
                match base.checked_add_signed(distance) {
                    Some(expected) => {
                        assert_eq!(position.unwrap(), expected);
                        place = expected as usize;
                    }
                    None => assert_eq!(position.unwrap_err().kind(), ErrorKind::InvalidInput),
                }
            }
        }
        assert_eq!(stream.position(), place as u64, "{act:?}");
    }
}

#[watched_test(limit = std::time::Duration::from_secs(300))]
fn random_scripts_read_back_the_bytes_they_wrote() {
    let folder = folder();
    for (name, engine) in engines() {
        for runtime in runtimes() {
            let config = ProptestConfig { cases: 12, ..ProptestConfig::default() };
            proptest!(config, |(acts in acts())| {
                let mut model = pattern(600_000);
                let file = file_with(&folder, "script", &model, false);
                let mut stream = AsyncFile::new(&engine, &file);
                runtime.block_on(run_script(&mut stream, &mut model, &acts));
                // A dropped read has changed nothing.
                drop(stream);
                prop_assert!(std::fs::read(file.path()).unwrap() == model, "{name}");
            });
        }
    }
}

#[watched_test]
fn the_position_after_an_appended_write_is_the_end_of_the_file() {
    use std::io::{Seek as _, Write as _};
    let folder = folder();
    let path = folder.path().join("appended");
    for (name, engine) in engines() {
        for runtime in runtimes() {
            std::fs::write(&path, b"start").unwrap();
            let file = DiskFile::options().read(true).append(true).open(&path).unwrap();
            let mut of_std = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
            let mut stream = AsyncFile::new(&engine, &file);
            runtime.block_on(async {
                stream.write_all(b"abc").await.unwrap();
                assert_eq!(stream.position(), 8, "{name}");
                of_std.write_all(b"by std").unwrap();
                assert_eq!(of_std.stream_position().unwrap(), 14);
                stream.seek(SeekFrom::Start(1)).await.unwrap();
                stream.write_all(b"de").await.unwrap();
                assert_eq!(stream.position(), 16, "{name}");
                // The next read is at the end, as with std.
                assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0, "{name}");
                assert_eq!(stream.seek(SeekFrom::Current(-2)).await.unwrap(), 14, "{name}");
                let mut last = String::new();
                stream.read_to_string(&mut last).await.unwrap();
                assert_eq!(last, "de", "{name}");
            });
            assert_eq!(std::fs::read(&path).unwrap(), b"startabcby stdde");
        }
    }
}

#[watched_test]
fn direct_files_can_be_read_in_pieces_of_any_size() {
    let folder = folder();
    let content = pattern(300_001);
    for (name, engine) in engines() {
        let file = file_with(&folder, "direct", &content, true);
        for (from, piece) in
            [(0, 1000), (1, 4096), (4095, 70_000), (299_000, 300_000), (300_001, 1)]
        {
            for runtime in runtimes() {
                let mut stream = AsyncFile::new(&engine, &file);
                let read: Vec<u8> = runtime.block_on(async {
                    stream.seek(SeekFrom::Start(from)).await.unwrap();
                    let (mut read, mut part) = (Vec::new(), vec![0; piece]);
                    loop {
                        match stream.read(&mut part).await.unwrap() {
                            0 => return read,
                            count => read.extend(&part[..count]),
                        }
                    }
                });
                assert!(read == content[from as usize..], "{name}: {piece} bytes from {from} on");
            }
        }
    }
}

#[watched_test]
fn direct_writes_must_be_aligned() {
    let folder = folder();
    let file = file_with(&folder, "aligned", &pattern(64 << 10), true);
    let block = file.alignment().offset;
    if block == 1 {
        return skipped(Need::Storage, "nothing has to be aligned here");
    }
    for (_, engine) in engines() {
        let mut stream = AsyncFile::new(&engine, &file);
        runtimes()[0].block_on(async {
            stream.write_all(&vec![7; 8 * block]).await.unwrap();
            let error = stream.write_all(b"odd").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            // The position and the file are unchanged.
            assert_eq!(stream.position(), 8 * block as u64);
            stream.write_all(&vec![8; block]).await.unwrap();
        });
        let there = std::fs::read(file.path()).unwrap();
        assert!(there[..8 * block] == vec![7; 8 * block]);
        assert!(there[8 * block..9 * block] == vec![8; block]);
    }
}

#[watched_test]
fn a_write_with_a_dropped_future_runs_before_later_operations() {
    let folder = folder();
    let long = pattern(200_000);
    for (name, engine) in engines() {
        for runtime in runtimes() {
            let file = file_with(&folder, "dropped", &[], false);
            let mut stream = AsyncFile::new(&engine, &file);
            let dropped = |stream: &mut AsyncFile| {
                let before = stream.position();
                match poll_once(stream.write(&long)) {
                    // The operation was faster than the check.
                    Poll::Ready(count) => {
                        assert_eq!(count.unwrap() as u64, stream.position() - before)
                    }
                    Poll::Pending => assert_eq!(stream.position(), before, "{name}"),
                }
                before
            };
            let mut read = vec![0; long.len()];
            runtime.block_on(async {
                // Other bytes to the same place win.
                let at = dropped(&mut stream);
                stream.seek(SeekFrom::Start(at)).await.unwrap();
                stream.write_all(b"other").await.unwrap();
                stream.seek(SeekFrom::Start(0)).await.unwrap();
                stream.read_exact(&mut read).await.unwrap();
                assert!(read[..5] == *b"other" && read[5..] == long[5..], "{name}");
                // The same bytes to another place: both places have them.
                let at = dropped(&mut stream);
                stream.seek(SeekFrom::Start(1_000_000)).await.unwrap();
                stream.write_all(&long).await.unwrap();
                for from in [at, 1_000_000] {
                    stream.seek(SeekFrom::Start(from)).await.unwrap();
                    stream.read_exact(&mut read).await.unwrap();
                    assert!(read == long, "{name}");
                }
                // The same bytes to the same place count as that write; a flush waits for it.
                let at = dropped(&mut stream);
                stream.flush().await.unwrap();
                let there = std::fs::read(file.path()).unwrap();
                assert!(there[at as usize..] == long, "{name}");
                // The same to another place, after a seek that was not awaited.
                let at = dropped(&mut stream);
                let place = SeekFrom::Start(at + 1_000_000);
                std::pin::Pin::new(&mut stream).start_seek(place).unwrap();
                stream.write_all(&long).await.unwrap();
                let there = std::fs::read(file.path()).unwrap();
                for from in [at as usize, at as usize + 1_000_000] {
                    assert!(there.get(from..from + long.len()) == Some(&long[..]), "{name}");
                }
            });
        }
    }
}

#[cfg(target_os = "linux")]
#[watched_test]
fn an_error_is_returned_by_the_write_that_caused_it() {
    use pipewright_disk::DiskFile;
    let folder = folder();
    let path = folder.path().join("one-way");
    std::fs::write(&path, b"x").unwrap();
    for (name, engine) in engines() {
        // A device that is always full.
        let full = DiskFile::options().write(true).open("/dev/full").unwrap();
        let reader = DiskFile::options().read(true).open(&path).unwrap();
        runtimes()[0].block_on(async {
            let mut stream = AsyncFile::new(&engine, &full);
            for _ in 0..2 {
                let error = stream.write(b"lost").await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{name}");
                stream.flush().await.unwrap();
            }
            // If it was not awaited, the next call returns it, once.
            if poll_once(stream.write(b"lost")).is_pending() {
                assert_eq!(stream.flush().await.unwrap_err().kind(), ErrorKind::StorageFull);
            }
            stream.shutdown().await.unwrap();
            let mut stream = AsyncFile::new(&engine, &reader);
            let error = stream.write(b"y").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{name}: {error}");
            assert_eq!(stream.read_u8().await.unwrap(), b'x');
        });
    }
}

#[watched_test]
fn many_tasks_share_an_engine() {
    let folder = folder();
    for (name, engine) in engines() {
        for runtime in runtimes() {
            let tasks: Vec<_> = (0..16_usize)
                .map(|task| {
                    let content = pattern(100_000 + task * 7777);
                    let from = file_with(&folder, &format!("from-{task}"), &content, task % 2 == 0);
                    let to = file_with(&folder, &format!("to-{task}"), &[], false);
                    let engine = engine.clone();
                    runtime.spawn(async move {
                        let mut from = AsyncFile::new(&engine, &from);
                        let mut to = AsyncFile::new(&engine, &to);
                        let copied = tokio::io::copy(&mut from, &mut to).await.unwrap();
                        assert_eq!(copied, content.len() as u64);
                        assert!(std::fs::read(to.file().path()).unwrap() == content);
                    })
                })
                .collect();
            runtime.block_on(async {
                for task in tasks {
                    task.await.unwrap_or_else(|error| panic!("{name}: {error}"));
                }
            });
        }
    }
}

#[watched_test]
fn a_task_with_cached_data_yields_to_others() {
    let folder = folder();
    let file = file_with(&folder, "cached", &pattern(4096), false);
    let engine = SharedEngine::new(EngineOptions::default()).unwrap();
    runtimes()[0].block_on(async {
        let (stop, stopped) = std::sync::mpsc::channel();
        let reader = tokio::spawn(async move {
            let (mut stream, mut byte) = (AsyncFile::new(&engine, &file), [0]);
            // Endless, unless the other task gets the only thread.
            while stopped.try_recv().is_err() {
                stream.seek(SeekFrom::Start(0)).await.unwrap();
                stream.read_exact(&mut byte).await.unwrap();
            }
        });
        let other = tokio::spawn(async move { stop.send(()).unwrap() });
        reader.await.unwrap();
        other.await.unwrap();
    });
}
