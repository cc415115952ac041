//! Conversions to and from std's command, and the options that the extension traits set.

use std::ffi::OsStr;
use std::io;

use pipewright_os::base::handle::Handle;
use pipewright_os::process::start::{UnixOptions, WindowsOptions};
use pipewright_os::process::std_process::{
    CommandOptions, ParentStream, Stdio as StdStdio, apply_to_std, push_arg,
};

use super::stdio::Choice;
use super::{Command, Stdio};
use crate::rules::Linger;

impl Command {
    /// Makes a command that follows std's rules where this crate's rules differ.
    pub(crate) fn with_std_rules(program: &OsStr) -> Command {
        let mut command = Command::new(program);
        command.inherit_all = true;
        command.unix.std_rules = true;
        command.options.rules.linger = Linger::UntilEof;
        command
    }

    /// Copies the settings that std's command exposes.
    pub(crate) fn copy_visible(&mut self, visible: Command) {
        self.args = visible.args;
        self.env = visible.env;
        self.current_dir = visible.current_dir;
    }

    /// Makes a std command with everything that std has setters for, except closures. Handles are copied. A stream
    /// that std does not have, or whose handle cannot be copied, stays unset.
    pub(crate) fn to_std(&self, with_secrets: bool, with_stdio: bool) -> std::process::Command {
        let mut theirs = std::process::Command::new(&self.program);
        for (index, arg) in self.args.iter().enumerate() {
            let is_hidden = !with_secrets && self.secret_args.contains(&index);
            let is_raw = self.windows.as_ref().is_some_and(|it| it.raw_args.contains(&index));
            push_arg(&mut theirs, if is_hidden { OsStr::new("***") } else { arg }, is_raw);
        }
        if self.env.is_clear() {
            theirs.env_clear();
        }
        for (key, value) in self.get_envs() {
            match value {
                Some(value) => theirs.env(key, value),
                None => theirs.env_remove(key),
            };
        }
        if let Some(dir) = &self.current_dir {
            theirs.current_dir(dir);
        }
        apply_to_std(&mut theirs, self.arg0.as_deref(), &self.unix, self.windows.as_deref());
        if with_stdio {
            let std_of = |stdio: &Option<Stdio>| stdio.as_ref().and_then(Stdio::to_std);
            let _ = std_of(&self.stdin).map(|stdio| theirs.stdin(stdio));
            let _ = std_of(&self.stdout).map(|stdio| theirs.stdout(stdio));
            let _ = std_of(&self.stderr).map(|stdio| theirs.stderr(stdio));
        }
        theirs
    }
}

impl Stdio {
    /// Returns std's equivalent, or `None` if there is none.
    fn to_std(&self) -> Option<std::process::Stdio> {
        Some(match &self.0 {
            Choice::Inherit => std::process::Stdio::inherit(),
            Choice::Null => std::process::Stdio::null(),
            Choice::Piped(_) => std::process::Stdio::piped(),
            Choice::Parent(ParentStream::Stdout) => io::stdout().into(),
            Choice::Parent(ParentStream::Stderr) => io::stderr().into(),
            Choice::Handle(handle) => {
                let copy: Handle = handle.try_clone().ok()?;
                StdStdio::from(copy).into()
            }
            _ => return None,
        })
    }
}

impl From<std::process::Command> for Command {
    /// Copies the settings that std's command exposes: program, arguments, environment changes and working
    /// directory. Stdio, `env_clear` and the settings of the extension traits are not exposed and have to be set
    /// again.
    fn from(command: std::process::Command) -> Command {
        let mut ours = Command::new(command.get_program());
        ours.args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => ours.env(key, value),
                None => ours.env_remove(key),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            ours.current_dir(dir);
        }
        ours
    }
}

impl From<Command> for std::process::Command {
    /// Copies the settings that std has stable setters for: program, arguments, environment, working directory, the
    /// settings of std's extension traits, and stdio that is inherited, null, piped or a handle.
    fn from(mut command: Command) -> std::process::Command {
        let mut theirs = command.to_std(true, true);
        command.unix.move_closures_to_std(&mut theirs);
        theirs
    }
}

impl CommandOptions for Command {
    fn unix_options(&mut self) -> &mut UnixOptions {
        &mut self.unix
    }

    fn windows_options(&mut self) -> &mut WindowsOptions {
        self.windows.get_or_insert_default()
    }

    fn set_arg0(&mut self, name: &OsStr) {
        self.arg0(name);
    }

    fn push_raw_arg(&mut self, text: &OsStr) {
        self.raw_arg(text);
    }

    fn replace_process(&mut self) -> io::Error {
        self.exec().into()
    }
}
