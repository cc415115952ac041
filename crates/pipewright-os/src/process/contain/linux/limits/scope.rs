//! A scope of systemd's for this process alone, in which limited cgroups can be made: systemd is asked for one if this
//! process is in a scope that does not allow them.
//!
//! The manager of the user is asked, by root that of the system. The question has an end even if the manager does not
//! answer, and no process asks a second time.

use std::fmt::Display;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use super::Controllers;
use super::dbus::{self, Body, Call, Connection, Failure};
use super::delegated::{Level, is_under_systemd};
use crate::base::generation::PerProcess;
use crate::process::contain::linux::place::{OwnCgroups, own_cgroups};

/// The time in which a manager has to answer at all.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The time for the whole question, until this process has been moved. A manager of a busy machine, which has answered,
/// may take longer than one that does not answer.
const MOST_TIME: Duration = Duration::from_secs(5);

/// The first result of this process: the reason why there is no scope, or why there will be no other.
static ASKED: PerProcess<OnceLock<String>> = PerProcess::new(OnceLock::new);

/// The reason why this process gets no scope.
#[derive(Debug, Default)]
pub(super) struct NoScope {
    /// `None` if a scope would be no answer here, so that nothing needs to be said about it.
    pub(super) reason: Option<String>,
    /// The remedy, if it is another one than that for the cgroup.
    pub(super) remedy: Option<String>,
}

impl NoScope {
    fn because(reason: impl Display) -> NoScope {
        NoScope {
            reason: Some(format!("systemd makes no scope for this process: {reason}")),
            remedy: None,
        }
    }
}

/// Moves this process to a scope of its own, and returns that.
pub(super) fn enter(own: &Level, top: &Path, wanted: Controllers) -> Result<Level, NoScope> {
    let question = Question::new(own, top, wanted)?;
    let result = question.ask(Instant::now());
    let known = result.as_ref().err().cloned();
    let _ = ASKED.get().set(known.unwrap_or_else(|| "it has made one before".to_owned()));
    result.map_err(NoScope::because)
}

/// Returns true if this process would be moved to a scope of its own. Does not move it, but makes sure that the manager
/// answers.
pub(super) fn would_enter(own: &Level, top: &Path, wanted: Controllers) -> bool {
    let Ok(question) = Question::new(own, top, wanted) else { return false };
    match question.connect(Instant::now(), &ping()) {
        Ok(_) => true,
        Err(failure) => {
            // It would not answer the question either.
            let _ = ASKED.get().set(failure.to_string());
            false
        }
    }
}

/// Returns the remedy for a process whose cgroup systemd has not delegated.
pub(super) fn remedy(own: &Level) -> String {
    let is_root = rustix::process::geteuid().is_root();
    let unit = own.path.file_name().and_then(|name| name.to_str());
    match unit.filter(|_| own.is_unit(".service")) {
        // A service that left its cgroup would look as if it had ended.
        Some(unit) => {
            let is_user_s = |path: &Path| {
                path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"user@"))
            };
            let (who, user) = match own.path.ancestors().skip(1).any(is_user_s) {
                true => ("", " --user"),
                false if is_root => ("", ""),
                false => ("as root: ", ""),
            };
            format!("{who}systemctl{user} edit {unit}, with Delegate=yes in [Service]")
        }
        None => {
            let user = if is_root { "" } else { " --user" };
            format!("systemd-run{user} --scope -p Delegate=yes -- COMMAND")
        }
    }
}

/// Returns the remedy for a manager of the user that does not have these controllers.
pub(super) fn delegate_to_user(controllers: &str) -> String {
    format!("as root: systemctl edit user@.service, with Delegate={controllers} in [Service]")
}

/// A question that may be asked.
#[derive(Debug)]
struct Question {
    sockets: Vec<Socket>,
    /// The slice that this process is in, if the manager knows it under that name.
    slice: Option<String>,
    /// The number of processes that this process's scope may have.
    pids_max: Option<u64>,
}

/// A socket of a manager, or of a bus that leads to it.
#[derive(Debug)]
struct Socket {
    path: PathBuf,
    is_bus: bool,
}

impl Question {
    fn new(own: &Level, top: &Path, wanted: Controllers) -> Result<Question, NoScope> {
        if !is_under_systemd() || !own.is_unit(".scope") {
            return Err(NoScope::default());
        }
        if let Some(reason) = ASKED.get().get() {
            return Err(NoScope::because(reason));
        }
        let sockets = sockets();
        if sockets.is_empty() {
            return Err(NoScope::because("its manager for this user has no socket"));
        }
        let slice = slice(own, top);
        if let Some(limited) = limit_left(own, top, slice.as_deref()) {
            return Err(NoScope::because(format!(
                "that would leave a limit of {}",
                limited.display()
            )));
        }
        if let Some(manager) = manager_of(own, top) {
            // It would be asked in vain.
            let controllers = manager.controllers_in("cgroup.controllers");
            let missing = wanted.without(controllers.map_err(NoScope::because)?);
            if missing != Controllers::NONE {
                let names: Vec<_> = missing.iter().map(|it| it.name()).collect();
                let names = names.join(" ");
                let path = manager.path.display();
                return Err(NoScope {
                    remedy: Some(delegate_to_user(&names)),
                    ..NoScope::because(format!("{path} does not have the controllers: {names}"))
                });
            }
        }
        let slice = slice.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        Ok(Question { sockets, slice, pids_max: own.pids_max() })
    }

    /// Returns a connection on which that call was answered.
    fn connect(&self, start: Instant, first: &Call<'_>) -> Result<Connection, Failure> {
        let mut reason = None;
        for socket in &self.sockets {
            match socket.connect(start).and_then(|mut connection| {
                connection.call(first)?;
                Ok(connection)
            }) {
                Err(failure @ Failure::NotLetIn(_)) => reason = reason.or(Some(failure)),
                other => return other,
            }
        }
        Err(reason.unwrap_or(Failure::NoAnswer))
    }

    /// Asks, and waits until this process has been moved.
    fn ask(&self, asked_at: Instant) -> Result<Level, String> {
        let deadline = asked_at + MOST_TIME;
        let name = unit_name();
        self.connect(asked_at, &start(&name, self)).map_err(|failure| failure.to_string())?;
        loop {
            let own = own_cgroups().ok().flatten();
            let path = |own: &OwnCgroups| Some(own.of(None).ok()??.path());
            match own.as_deref().and_then(path) {
                Some(path) if path.ends_with(&name) => return Ok(Level { path }),
                _ => {
                    dbus::pause(deadline).map_err(|_| "it has not moved this process".to_owned())?
                }
            }
        }
    }
}

impl Socket {
    fn connect(&self, start: Instant) -> Result<Connection, Failure> {
        let mut connection = Connection::open(&self.path, start + ANSWER_TIME)?;
        connection.set_deadline(start + MOST_TIME);
        if self.is_bus {
            connection.call(&hello())?;
        }
        Ok(connection)
    }
}

/// Returns the sockets of the manager, those that belong to this user.
fn sockets() -> Vec<Socket> {
    let user = rustix::process::geteuid();
    let sockets = if user.is_root() {
        vec![Socket { path: "/run/systemd/private".into(), is_bus: false }]
    } else {
        let dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let dir = dir.filter(|dir| dir.is_absolute());
        let dir = dir.unwrap_or_else(|| format!("/run/user/{}", user.as_raw()).into());
        let socket = |name, is_bus| Socket { path: dir.join(name), is_bus };
        vec![socket("systemd/private", false), socket("bus", true)]
    };
    let belongs = |socket: &Socket| {
        let facts = std::fs::metadata(&socket.path);
        facts.is_ok_and(|it| it.file_type().is_socket() && it.uid() == user.as_raw())
    };
    sockets.into_iter().filter(belongs).collect()
}

/// Returns the slice in which the new scope is to be: that of this process, if it belongs to the manager that is asked.
fn slice(own: &Level, top: &Path) -> Option<PathBuf> {
    let is_slice = |path: &&Path| path.extension().is_some_and(|it| it == "slice");
    let around = || own.path.ancestors().skip(1).take_while(|path| *path != top);
    let user = rustix::process::geteuid();
    if user.is_root() {
        // The slices in a service are those of a user's manager.
        let services = around().filter(|path| path.extension().is_some_and(|it| it == "service"));
        let outermost = services.last().map(Path::to_owned);
        let below =
            |path: &&Path| outermost.as_ref().is_none_or(|service| !path.starts_with(service));
        return around().filter(below).find(is_slice).map(Path::to_owned);
    }
    let belongs =
        |path: &&Path| std::fs::metadata(path).is_ok_and(|facts| facts.uid() == user.as_raw());
    around().next().filter(is_slice).filter(belongs).map(Path::to_owned)
}

/// Returns a cgroup whose limit this process would leave with its present scope.
fn limit_left(own: &Level, top: &Path, slice: Option<&Path>) -> Option<PathBuf> {
    // The new scope is given the same number of processes.
    if own.is_limited_beyond_pids() {
        return Some(own.path.clone());
    }
    let users = format!("user-{}.slice", rustix::process::geteuid().as_raw());
    let stays = |path: &&Path| match slice {
        Some(slice) => *path == slice,
        None => *path == top || path.ends_with(&users),
    };
    let left = own.path.ancestors().skip(1).take_while(|path| !stays(path) && *path != top);
    left.map(|path| Level { path: path.to_owned() }).find(Level::is_limited).map(|it| it.path)
}

/// Returns the cgroup of the user's manager, whose controllers are all that it can give. `None` if it is not known.
fn manager_of(own: &Level, top: &Path) -> Option<Level> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return Some(Level { path: top.to_owned() });
    }
    let name = format!("user@{}.service", user.as_raw());
    let around = || own.path.ancestors().skip(1).take_while(|path| *path != top);
    let inside = around().find(|path| path.ends_with(&name)).map(Path::to_owned);
    // A session is beside it.
    let path = inside.or_else(|| around().map(|path| path.join(&name)).find(|path| path.exists()));
    path.map(|path| Level { path })
}

/// Returns a name that no other unit has.
fn unit_name() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("pipewright-{}-{}.scope", std::process::id(), now.as_micros())
}

/// The call without which a bus passes on no other.
fn hello() -> Call<'static> {
    const BUS: &str = "org.freedesktop.DBus";
    let path = "/org/freedesktop/DBus";
    Call {
        destination: BUS,
        path,
        interface: BUS,
        member: "Hello",
        signature: "",
        body: Body::default(),
    }
}

/// A method of the manager.
fn method<'a>(interface: &'a str, member: &'a str, signature: &'a str, body: Body) -> Call<'a> {
    let (destination, path) = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1");
    Call { destination, path, interface, member, signature, body }
}

/// A call that does nothing.
pub(super) fn ping() -> Call<'static> {
    method("org.freedesktop.DBus.Peer", "Ping", "", Body::default())
}

/// The call that makes a scope with the calling process.
fn start(name: &str, question: &Question) -> Call<'static> {
    /// The caller: the manager looks its number up, which differs in another pid namespace.
    const CALLER: u32 = 0;
    let mut body = Body::default();
    body.string(name);
    body.string("fail");
    body.array(8, |properties| {
        properties.property("Description", "s", |it| it.string("pipewright"));
        properties.property("PIDs", "au", |it| it.array(4, |pids| pids.u32(CALLER)));
        properties.property("Delegate", "b", |it| it.bool(true));
        properties.property("CollectMode", "s", |it| it.string("inactive-or-failed"));
        if let Some(most) = question.pids_max {
            properties.property("TasksMax", "t", |it| it.u64(most));
        }
        if let Some(slice) = &question.slice {
            properties.property("Slice", "s", |it| it.string(slice));
        }
    });
    // No other units.
    body.array(8, |_| {});
    method("org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))", body)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a call as the hexadecimal bytes of its message, with that serial.
    fn hex(call: &Call<'_>, serial: u32) -> String {
        call.bytes(serial).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn calls_have_the_bytes_that_busctl_sends() {
        // busctl of systemd 252, on a socket that recorded them:
        // call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager
        //   StartTransientUnit 'ssa(sv)a(sa(sv))' pipewright-12-0.scope fail 6 Description s pipewright PIDs au 1 0
        //   Delegate b true CollectMode s inactive-or-failed TasksMax t 4915 Slice s app.slice 0
        let question = Question {
            sockets: Vec::new(),
            slice: Some("app.slice".to_owned()),
            pids_max: Some(4915),
        };
        let call = start("pipewright-12-0.scope", &question);
        assert_eq!(hex(&call, 2), include_str!("dbus/start-transient-unit.hex").trim());
        assert_eq!(hex(&ping(), 2), include_str!("dbus/ping.hex").trim());
        assert_eq!(hex(&hello(), 1), include_str!("dbus/hello.hex").trim());
    }

    #[test]
    fn the_name_of_a_scope_is_that_of_no_tree() {
        let level = Level { path: Path::new("/sys").join(unit_name()) };
        assert!(level.is_unit(".scope") && !level.holds_tree());
    }

    #[test]
    fn another_slice_than_that_of_the_manager_is_not_named() {
        // Directories of root stand for cgroups: none of them belongs to an ordinary user.
        let slice = |path: &str| slice(&Level { path: path.into() }, Path::new("/sys/fs/cgroup"));
        let found =
            slice("/sys/fs/cgroup/user.slice/user-7.slice/user@7.service/app.slice/a.scope");
        let expected = rustix::process::geteuid().is_root();
        let expected = expected.then(|| "/sys/fs/cgroup/user.slice/user-7.slice".into());
        assert_eq!(found, expected);
        assert_eq!(slice("/sys/fs/cgroup/a.scope"), None);
    }

    #[test]
    fn a_service_is_told_to_have_itself_delegated() {
        let remedy = |path: &str| remedy(&Level { path: path.into() });
        let user =
            remedy("/sys/fs/cgroup/user.slice/user-7.slice/user@7.service/app.slice/a.service");
        assert_eq!(user, "systemctl --user edit a.service, with Delegate=yes in [Service]");
        let system = remedy("/sys/fs/cgroup/system.slice/a.service");
        assert!(system.ends_with("systemctl edit a.service, with Delegate=yes in [Service]"));
        assert!(remedy("/sys/fs/cgroup/a.scope").starts_with("systemd-run "));
    }

    #[test]
    fn a_service_is_not_asked_for() {
        let own = Level { path: "/sys/fs/cgroup/a.service".into() };
        let no_scope =
            enter(&own, Path::new("/sys/fs/cgroup"), Controllers::NONE).map(|it| it.path);
        assert!(no_scope.is_err_and(|it| it.reason.is_none()));
    }
}
