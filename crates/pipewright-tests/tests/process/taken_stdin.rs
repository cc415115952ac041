//! A piped stdin that is written while lines and events are read.

use std::io::{Read as _, Write as _};

use pipewright::{Command, Event, Stdio};
use pipewright_test_macros::watched_test;
use tokio::io::AsyncWriteExt as _;

use super::async_verbs::one_thread;
use super::{flood, puppet};

fn cat() -> Command {
    puppet(["cat", "exit=3"]).stdin(Stdio::piped()).owned()
}

#[watched_test]
fn a_dialogue_works_while_stdin_is_open() {
    let mut lines = cat().lines().unwrap();
    let mut stdin = lines.take_stdin().unwrap();
    assert!(lines.take_stdin().is_none());
    for text in ["one", "two"] {
        writeln!(stdin, "{text}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap().text, text);
    }
    drop(stdin);
    assert!(lines.next().is_none());
    assert_eq!(lines.finish().unwrap().status.code(), Some(3));

    let mut events = cat().events().unwrap();
    let Event::Started(_) = events.next().unwrap().unwrap() else { panic!("the start") };
    let mut stdin = events.take_stdin().unwrap();
    for text in ["one", "two"] {
        stdin.write_all(text.as_bytes()).unwrap();
        assert_eq!(events.next().unwrap().unwrap(), Event::Stdout(text.into()));
    }
    drop(stdin);
    let Some(Ok(Event::Exited(ending))) = events.next() else { panic!("the end") };
    assert_eq!(ending.status.code(), Some(3));
}

#[watched_test]
fn a_task_writes_and_reads_at_once() {
    one_thread().block_on(async {
        let mut command = puppet(["cat"]);
        let mut events = command.stdin(Stdio::piped_async()).events_async().unwrap();
        let mut stdin = events.take_stdin().unwrap().into_async().unwrap();
        let bytes = flood(1_000_000);
        let (_, read) = tokio::join!(
            async {
                stdin.write_all(&bytes).await.unwrap();
                stdin.shutdown().await.unwrap();
            },
            async {
                let mut read = Vec::new();
                while let Some(event) = events.next().await {
                    if let Event::Stdout(bytes) = event.unwrap() {
                        read.extend(bytes);
                    }
                }
                read
            }
        );
        assert!(read == bytes);
        let mut lines = cat().lines_async().unwrap();
        lines.take_stdin().unwrap().write_all(b"said\n").unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap().text, "said");
        assert!(lines.next().await.is_none());
    });
}

#[watched_test]
fn an_untaken_stdin_is_closed_by_the_first_wait() {
    assert!(cat().lines().unwrap().next().is_none());
    assert_eq!(cat().lines().unwrap().finish().unwrap().status.code(), Some(3));
    let mut events = cat().events().unwrap();
    assert!(matches!(events.next(), Some(Ok(Event::Started(_)))));
    assert!(matches!(events.next(), Some(Ok(Event::Exited(_)))));
    assert!(events.take_stdin().is_none(), "it is too late");
    one_thread().block_on(async {
        assert!(cat().lines_async().unwrap().next().await.is_none());
        assert_eq!(cat().events_async().unwrap().finish().await.unwrap().status.code(), Some(3));
    });
    assert!(puppet(["cat"]).lines().unwrap().take_stdin().is_none(), "it is not piped");
}

#[watched_test]
fn stdin_of_a_pipeline_is_that_of_its_first_stage() {
    let mut pipeline = cat() | puppet(["cat"]);
    let mut lines = pipeline.lines().unwrap();
    let mut stdin = lines.take_stdin().unwrap();
    stdin.write_all(b"said\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap().text, "said");
    drop(stdin);
    assert!(lines.next().is_none());
    let mut events = pipeline.events().unwrap();
    events.take_stdin().unwrap().write_all(b"said").unwrap();
    let mut output = Vec::new();
    for event in events {
        if let Event::Stdout(bytes) = event.unwrap() {
            output.extend(bytes);
        }
    }
    assert_eq!(output, b"said");
}

#[watched_test]
fn a_spawned_child_gives_its_events() {
    let spawn = || {
        let mut command = puppet(["cat-both", "exit=4"]);
        command.stdin(Stdio::bytes(flood(1_000_000))).stdout(Stdio::piped());
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let check = |events: Vec<Event>| {
        let (mut out, mut err, mut code) = (Vec::new(), Vec::new(), None);
        for (number, event) in events.into_iter().enumerate() {
            match event {
                Event::Started(_) => assert_eq!(number, 0),
                Event::Stdout(bytes) => out.extend(bytes),
                Event::Stderr(bytes) => err.extend(bytes),
                Event::Exited(ending) => code = ending.status.code(),
                other => panic!("{other:?}"),
            }
        }
        assert!(out == flood(1_000_000) && err == out);
        assert_eq!(code, Some(4));
    };
    check(spawn().read_all_events().map(Result::unwrap).collect());
    one_thread().block_on(async {
        let (mut all, mut events) = (Vec::new(), spawn().read_all_events_async());
        while let Some(event) = events.next().await {
            all.push(event.unwrap());
        }
        check(all);
    });
    // Output that was read before belongs to the caller.
    let mut child = cat().stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let events = child.read_all_events();
    stdin.write_all(b"x").unwrap();
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "x");
    assert_eq!(events.finish().unwrap().status.code(), Some(3));
}
