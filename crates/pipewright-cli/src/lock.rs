//! `lock`: a command that runs while it has a lock, as `sem` of GNU parallel and `flock` of util-linux.
//!
//! A lock for N commands is N files. The command inherits the one that is locked: the kernel ends the lock when the
//! tool and the last process with the file are dead.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use clap::Parser as _;
use pipewright_os::base::error::Quoted;
use pipewright_os::base::private_file::{self, Facts, OpenFolder, lock_open_file};

use crate::args::{Args, LockOptions, Span, ToolCommand};
use crate::{Failure, exit_code, print_error};

/// Waits for the lock, runs the command, and returns the exit code.
pub(crate) fn run(options: LockOptions) -> Result<i32, Failure> {
    let slots = Slots::open(&options)?;
    let Some(lock) = slots.lock(&options).map_err(|error| slots.failure(&error))? else {
        print_error(&format!("the lock {} is not free", options.name));
        return Ok(exit_code::NOT_LOCKED);
    };
    let words = ["pipewright", "run", "--"].map(OsString::from).into_iter().chain(options.command);
    let args = Args::try_parse_from(words).map_err(|error| Failure(error.to_string()))?;
    match args.command {
        ToolCommand::Run(mut command) => {
            command.0.lock = Some(lock.into());
            crate::run::run(*command.0)
        }
        // Never: the word is `run`.
        _ => Ok(exit_code::OWN_FAILURE),
    }
}

/// The files of a lock.
struct Slots {
    folder: OpenFolder,
    path: PathBuf,
    name: String,
    is_private: bool,
}

impl Slots {
    fn open(options: &LockOptions) -> Result<Slots, Failure> {
        let opened = match &options.folder {
            Some(folder) => OpenFolder::open_named(folder).map(|opened| (folder.clone(), opened)),
            None => private_file::temporary_folder("pipewright-locks"),
        };
        let name = options.folder.as_ref().map(|folder| Quoted(folder.as_os_str()).to_string());
        let of = name.unwrap_or_else(|| "this user".to_owned());
        let (path, folder) =
            opened.map_err(Failure::cannot(&format!("open the folder for locks of {of}")))?;
        let is_private = options.folder.is_none();
        Ok(Slots { folder, path, name: options.name.clone(), is_private })
    }

    fn failure(&self, error: &io::Error) -> Failure {
        let path = self.path.join(&self.name);
        Failure(format!("cannot lock {}: {error}", Quoted(path.as_os_str())))
    }

    /// Opens a file, or creates it. It is read only: others may not write the file of a user, and need not to lock it,
    /// but they have to open it.
    fn file(&self, number: u32) -> io::Result<File> {
        let name = format!("{}.{number}", self.name);
        match self.folder.open_to_read(&name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => return opened,
        }
        // Others may open it from its first moment on, and wait. No other thread creates files.
        let created = match self.is_private {
            true => self.folder.create_new(&name, true),
            false => self.folder.create_readable(&name),
        };
        match created {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Opened as any other, whoever has created it.
        self.folder.open_to_read(&name)
    }

    /// Locks one of the files. `None`: the time is over.
    fn lock(&self, options: &LockOptions) -> io::Result<Option<File>> {
        let limit = options.timeout.as_ref().map(|Span { duration, .. }| *duration);
        // A time that no clock can count is no limit.
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let Some(file) = self.lock_until(options.jobs, end)? else { return Ok(None) };
            // One that was removed meanwhile, as by a cleaner of /tmp, is no lock any more.
            if Facts::of_file(&file)?.names() > 0 {
                return Ok(Some(file));
            }
        }
    }

    fn lock_until(&self, count: u32, end: Option<Instant>) -> io::Result<Option<File>> {
        let mut files = Vec::new();
        for number in 1..=count {
            let file = self.file(number)?;
            if lock_open_file(&file, false)? {
                return Ok(Some(file));
            }
            files.push(file);
        }
        if end.is_some_and(|end| end <= Instant::now()) {
            return Ok(None);
        }
        // The kernel has no wait for one of several locks: a thread waits for each. Those that come too late let go at
        // once.
        let (send, locked) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        for file in files {
            let (send, is_over) = (send.clone(), Arc::clone(&is_over));
            let wait = move || {
                let locked = lock_open_file(&file, true).map(|_| file);
                if !is_over.swap(true, Ordering::SeqCst) {
                    // Ignored: without a receiver the time is over, and the lock ends with the file.
                    let _ = send.send(locked);
                }
            };
            thread::Builder::new().name("lock".to_owned()).stack_size(64 << 10).spawn(wait)?;
        }
        drop(send);
        let received = match end {
            Some(end) => locked.recv_timeout(end.saturating_duration_since(Instant::now())).ok(),
            None => locked.recv().ok(),
        };
        if received.is_none() && is_over.swap(true, Ordering::SeqCst) {
            // A thread has just got the lock.
            return locked.recv().ok().transpose();
        }
        received.transpose()
    }
}
